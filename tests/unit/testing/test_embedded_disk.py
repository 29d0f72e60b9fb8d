"""The disk of a test broker fails and is slow as it is told to, for records and for nothing else."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record
from pybroker.testing import Broker, BrokerFailed
from pybroker.testing.embedded.disk import _of_records
from pybroker.testing.protocol_client import ProtocolClient

TIMEOUT_S = 60
SLOW_S = 0.1
FOR_EVER_S = 3600.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("durable", config={"flush.messages": "1"})
        yield broker


def client_of(broker: Broker) -> ProtocolClient:
    return ProtocolClient(int(broker.bootstrap_servers.rpartition(":")[2]))


def produce(broker: Broker) -> bool:
    """Whether a record was acknowledged."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": TIMEOUT_S * 1000})
    producer.produce("durable", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(2 * TIMEOUT_S)
    # By identity: confluent-kafka's errors leave an exception behind when they are compared with something else.
    return errors[0] is None


def refused(broker: Broker) -> bool:
    """Whether one request to produce is answered with an error, or not at all because the broker ends."""
    batch = record_batch.build(0, -1, [Record(None, b"x")], timestamp_ms=1)
    data = m.ProduceRequest.TopicProduceData(
        name="durable", partition_data=[m.ProduceRequest.PartitionProduceData(index=0, records=batch)]
    )
    with client_of(broker) as client:
        try:
            (answer,) = client.call(m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 9).responses
        except ConnectionError:
            return True
    return bool(answer.partition_responses[0].error_code != 0)


def test_what_is_not_synced_is_not_acknowledged(broker: Broker) -> None:
    assert produce(broker)
    broker.disk.fail_syncs()
    assert refused(broker)
    deadline = time.monotonic() + TIMEOUT_S
    while "a sync failed for durable-0: Input/output error" not in broker.output:
        assert time.monotonic() < deadline, broker.output
        time.sleep(0.01)
    with pytest.raises(BrokerFailed, match="ended with status 1"):
        broker.stop()
    broker.start()
    assert produce(broker)


def test_writes_are_late_until_the_disk_is_healed(broker: Broker) -> None:
    broker.disk.slow(SLOW_S)
    started = time.monotonic()
    assert produce(broker)
    # It is written and synced.
    assert time.monotonic() - started >= 2 * SLOW_S

    broker.disk.slow(FOR_EVER_S)
    healing = threading.Timer(SLOW_S, broker.disk.heal)
    started = time.monotonic()
    healing.start()
    assert produce(broker)
    assert SLOW_S <= time.monotonic() - started < TIMEOUT_S
    healing.join()


def test_metadata_is_spared(broker: Broker) -> None:
    broker.disk.slow(FOR_EVER_S)
    broker.disk.fail_syncs()
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2,
        resource_name="durable",
        configs=[
            m.IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=0, value="5000")
        ],
    )
    with client_of(broker) as client:
        (row,) = client.call(m.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert row.error_code == 0
    broker.disk.heal()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("data/orders-0/00000000000000000000.log", True),
        ("data/orders-12", True),
        ("data/recovery-point-offset-checkpoint.tmp", False),
        ("data", False),
        ("data/__cluster_metadata-0/00000000000000000000.log", False),
        ("data/__cluster_metadata-0/00000000000000000100-0000000001.checkpoint", False),
    ],
)
def test_what_is_of_records(tmp_path: Path, path: str, expected: bool) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix:
        file.touch()
    else:
        file.mkdir(exist_ok=True)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        assert _of_records(os.getpid(), descriptor) is expected
    finally:
        os.close(descriptor)


def test_a_stopped_broker_has_no_disk() -> None:
    with pytest.raises(BrokerFailed, match="stopped"):
        Broker().disk.fail_syncs()
