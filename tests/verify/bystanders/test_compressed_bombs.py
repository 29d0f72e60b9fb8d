"""Batches of some kilobytes that unpack to 130 MiB, beside clients that produce small batches and large honest ones.

All figures are counts of answers within one run, so a slow machine has fewer of each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.hostile.frames import bomb_batch

GZIP, ZSTD = 1, 4
BOMBERS = 4
SECONDS = 15.0
TOPIC = "t"
_INVALID_RECORD = 87


class Producer:
    """Sends one batch again and again, each when the last one is answered, and counts the answers."""

    def __init__(self, port: int, partition: int, records: bytes) -> None:
        self.answers = 0
        self.errors: list[int] = []
        self._client = ProtocolClient(port)
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
        topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        self._request = m.ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[topic])
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def produce(self) -> int:
        """Kafka's error code."""
        code: int = self._client.call(self._request, 9).responses[0].partition_responses[0].error_code
        return code

    def _run(self) -> None:
        while not self._end.is_set():
            code = self.produce()
            self.answers += 1
            if code != 0:
                self.errors.append(code)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
        self.close()

    def close(self) -> None:
        self._client.close()


@contextmanager
def broker_with_topic(directory: Path, **overrides: str) -> Iterator[BrokerProcess]:
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    with BrokerProcess(directory / "data", overrides={"pybroker.reactors": "1", **settings}) as broker:
        with ProtocolClient(broker.port) as client:
            wanted = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=8, replication_factor=1)
            answer = client.call(m.CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 5)
            assert answer.topics[0].error_code == 0
        yield broker
        assert broker.stop() == 0


def small_batch() -> bytes:
    return record_batch.build(0, 0, [Record(value=bytes(1000))], timestamp_ms=0)


def test_bombs_hold_up_neither_small_batches_nor_large_ones(tmp_path: Path) -> None:
    with broker_with_topic(tmp_path) as broker:
        bombers = [Producer(broker.port, partition, bomb_batch(GZIP)) for partition in range(BOMBERS)]
        small = Producer(broker.port, 4, small_batch())
        large = Producer(broker.port, 5, bomb_batch(GZIP, 2 << 20))
        everybody = [*bombers, small, large]
        for each in everybody:
            each.start()
        time.sleep(SECONDS)
        counts = [each.answers for each in everybody]
        for each in everybody:
            each.stop()
        bombs, small_answers, large_answers = sum(counts[:BOMBERS]), counts[BOMBERS], counts[BOMBERS + 1]
        print(f"answers in {SECONDS:.0f} s: {bombs} bombs, {small_answers} small batches, {large_answers} large ones")
        assert [each.errors for each in everybody] == [[]] * len(everybody)
        assert bombs > 0
        # A reactor that unpacks bombs answers about one small batch for each of them.
        assert small_answers >= 20 * bombs
        # In turns of 1 MiB, 5 clients' large batches cost a bomber as much as 60 of them. Without turns it is one of 4.
        assert large_answers >= 3 * bombs
        assert min(counts[:BOMBERS]) * 3 + 3 >= max(counts[:BOMBERS]), "the bombers share alike"


def test_max_decompressed_message_bytes_is_a_setting_of_topic_and_broker(tmp_path: Path) -> None:
    with broker_with_topic(tmp_path, max_decompressed_message_bytes="100000") as broker:
        # 100 records in each.
        small, large = (Producer(broker.port, 0, bomb_batch(ZSTD, 100 * size)) for size in (90_000, 110_000))
        assert (small.produce(), large.produce()) == (0, _INVALID_RECORD)
        with ProtocolClient(broker.port) as client:
            alter(client, "120000")
            assert large.produce() == 0
            alter(client, "80000")
            assert (small.produce(), large.produce()) == (_INVALID_RECORD, _INVALID_RECORD)
            # Look-ups by time refuse what is stored already, until the limit is raised again.
            assert look_up(client) == (_INVALID_RECORD, -1)
            alter(client, "95000")
            assert look_up(client) == (0, 0)
        small.close()
        large.close()


def alter(client: ProtocolClient, value: str) -> None:
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(
        name="max.decompressed.message.bytes", config_operation=0, value=value
    )
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name=TOPIC, configs=[config]
    )
    answer = client.call(m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == 0
    time.sleep(0.5)  # until it has reached the log


def look_up(client: ProtocolClient) -> tuple[int, int]:
    """(error code, offset) of the first record since 1970."""
    wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=0, current_leader_epoch=-1)
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[wanted])
    row = client.call(m.ListOffsetsRequest(replica_id=-1, topics=[topic]), 7).topics[0].partitions[0]
    return row.error_code, row.offset
