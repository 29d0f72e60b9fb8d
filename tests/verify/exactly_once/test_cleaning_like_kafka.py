"""Compaction and transaction markers beside Apache Kafka: the same requests, then the same answers, batches and files.

Stricter than the differential runs, which allow a key to be dropped sooner or later: here both clean the same ranges,
so what is left has to be equal batch by batch. Skipped where java or mvn is missing.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": "10",
    "transaction.partition.verification.enable": "false",
    "auto.create.topics.enable": "false",
}
TOPIC, BROKER = 2, 4
NOT_YET = {"min.compaction.lag.ms": "9000000000"}
NOW = {"min.compaction.lag.ms": "0"}
# Of zstd different releases make different bytes, so segments would be rolled elsewhere.
CODECS = ("producer", "uncompressed", "lz4", "gzip", "snappy")
DELETE_HORIZON = 0x40
CONTROL = 0x20
_BATCHES = 100


class Side:
    """One of the two brokers, by single requests."""

    def __init__(self, client: ProtocolClient, log_dir: Path) -> None:
        self.client = client
        self.log_dir = log_dir

    def create(self, topic: str, **configs: str) -> None:
        made = m.CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=1,
            replication_factor=1,
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        response = self.client.call(m.CreateTopicsRequest(topics=[made], timeout_ms=5000), 7)
        assert response.topics[0].error_code == 0
        deadline = time.monotonic() + 20
        while self.ends(topic)[0][0] != 0:
            assert time.monotonic() < deadline, f"{topic} is not led within 20 s"
            time.sleep(0.05)

    def alter(self, name: str, configs: dict[str, str], resource_type: int = TOPIC) -> int:
        config_of = m.IncrementalAlterConfigsRequest.AlterableConfig
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configs=[config_of(name=key, config_operation=0, value=value) for key, value in configs.items()],
        )
        response = self.client.call(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        code: int = response.responses[0].error_code
        return code

    def produce(self, topic: str, batch: bytes, transactional_id: str | None = None) -> tuple[int, int, int]:
        partition = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
        data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
        request = m.ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=5000, topic_data=[data])
        row = self.client.call(request, 9).responses[0].partition_responses[0]
        return row.error_code, row.base_offset, row.log_start_offset

    def end(self, topic: str, producer_id: int, epoch: int, commit: bool, **fields: int) -> list[Any]:
        """WriteTxnMarkers for partition 0 or `partition`; the answer."""
        index = fields.pop("partition", 0)
        marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            **fields,
        )
        version = 2 if "transaction_version" in fields else 1
        response = self.client.call(m.WriteTxnMarkersRequest(markers=[marker]), version)
        return [
            (each.producer_id, topic.name, row.partition_index, row.error_code)
            for each in response.markers
            for topic in each.topics
            for row in topic.partitions
        ]

    def ends(self, topic: str) -> list[tuple[int, int]]:
        """(error, offset) of ListOffsets: earliest, latest, latest for read_committed."""
        found = []
        for timestamp_ms, isolation_level in ((-2, 0), (-1, 0), (-1, 1)):
            wanted = m.ListOffsetsRequest.ListOffsetsPartition(
                partition_index=0, timestamp=timestamp_ms, current_leader_epoch=-1
            )
            topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])]
            request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
            row = self.client.call(request, 7).topics[0].partitions[0]
            found.append((row.error_code, row.offset))
        return found

    def producers(self, topic: str) -> list[tuple[int, int, int, int, int]]:
        wanted = m.DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
        row = self.client.call(m.DescribeProducersRequest(topics=[wanted]), 0).topics[0].partitions[0]
        return sorted(
            (
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in row.active_producers
        )

    def read(self, topic: str, isolation_level: int) -> tuple[list[tuple[Any, ...]], set[tuple[int, int]]]:
        """All batches and aborted transactions, without what depends on the broker's clock."""
        offset = self.ends(topic)[0][1]
        batches: list[tuple[Any, ...]] = []
        aborted: set[tuple[int, int]] = set()
        while True:
            row = self.client.fetch(topic, offset, isolation_level=isolation_level, max_bytes=1 << 22)
            assert row.error_code == 0
            aborted |= {(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()}
            found = list(record_batch.parse(row.records or b""))
            if not found:
                return batches, aborted
            batches += [_without_clock(each) for each in found]
            offset = found[-1].last_offset + 1

    def segments(self, topic: str) -> list[str]:
        return sorted(each.name for each in (self.log_dir / f"{topic}-0").glob("*.log"))

    def checkpoint(self) -> list[str]:
        """The lines of cleaner-offset-checkpoint."""
        try:
            text = (self.log_dir / "cleaner-offset-checkpoint").read_text()
        except FileNotFoundError:
            return []
        return sorted(text.splitlines()[2:])


def _without_clock(batch: record_batch.RecordBatch) -> tuple[Any, ...]:
    # A marker has the broker's time, and so has a delete horizon, which takes the place of the base timestamp.
    is_marker, has_horizon = bool(batch.attributes & CONTROL), bool(batch.attributes & DELETE_HORIZON)
    return (
        batch.base_offset,
        batch.last_offset_delta,
        batch.attributes,
        (batch.producer_id, batch.producer_epoch, batch.base_sequence),
        None if is_marker or has_horizon else batch.base_timestamp_ms,
        None if is_marker else batch.max_timestamp_ms,
        [(each.offset, each.key, each.value, each.headers) for each in batch.records],
    )


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    """(our broker, Apache Kafka) with the same settings."""
    with (
        KafkaBroker(overrides=SETTINGS) as kafka,
        BrokerProcess(overrides=SETTINGS) as ours,
        ProtocolClient(ours.port) as to_ours,
        ProtocolClient(kafka.port) as to_kafka,
    ):
        yield Side(to_ours, ours.log_dir), Side(to_kafka, kafka.log_dir)


def both(sides: tuple[Side, Side], action: Callable[[Side], Any]) -> Any:
    """Do the same to both; the answer, which must be the same."""
    ours, kafkas = [action(side) for side in sides]
    assert ours == kafkas
    return ours


def transactional(epoch: int, sequence: int) -> bytes:
    return record_batch.build(
        0,
        -1,
        [Record(b"k", b"v")],
        timestamp_ms=time.time_ns() // 1_000_000,
        transactional=True,
        producer_id=5,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def test_markers_are_answered_as_kafka_does(sides: tuple[Side, Side]) -> None:
    for side in sides:
        side.create("answers")
    steps: Sequence[Callable[[Side], Any]] = [
        lambda side: side.produce("answers", transactional(4, 0), "tx"),
        lambda side: side.end("answers", 5, 3, True),
        lambda side: side.end("answers", 5, 4, True, transaction_version=2),
        lambda side: side.end("answers", 5, 5, True, transaction_version=2, coordinator_epoch=9),
        lambda side: side.end("answers", 5, 5, True, transaction_version=2, coordinator_epoch=9),
        lambda side: side.end("answers", 5, 5, True, coordinator_epoch=8),
        lambda side: side.end("answers", 5, 4, False, coordinator_epoch=9),
        lambda side: side.produce("answers", transactional(4, 1), "tx"),
        lambda side: side.produce("answers", transactional(5, 0), None)[0],
        lambda side: side.produce("answers", transactional(5, 0), "tx"),
        lambda side: side.end("nope", 5, 5, True),
        lambda side: side.end("answers", 5, 5, True, partition=3),
        lambda side: side.end("__consumer_offsets", 5, 5, True),
        lambda side: side.producers("answers"),
        lambda side: side.ends("answers"),
        lambda side: side.alter("", {"log.cleaner.threads": "3"}, BROKER),
        lambda side: side.alter("", {"log.cleaner.threads": "2"}, BROKER),
    ]
    answers = [both(sides, step) for step in steps]
    assert {answer[0][3] for answer in answers[1:7]} == {0, 47, 52}, "accepted, fenced, replaced by a new coordinator"


def fill(sides: tuple[Side, Side], topic: str, seed: int, phase: int, open_from: int) -> None:
    """A hundred batches of random keys, tombstones and transactions of two producers; those that begin in batch
    `open_from` or later are not ended."""
    chosen = random.Random(seed * 10 + phase)
    sequences = {11: 0, 12: 0}
    open_ids: set[int] = set()
    started_ms = time.time_ns() // 1_000_000 - 3_600_000

    def end(producer_id: int) -> None:
        commit = chosen.random() < 0.5
        both(sides, lambda side: side.end(topic, producer_id, phase, commit))
        open_ids.discard(producer_id)

    def produce(records: list[Record], timestamp_ms: int, **fields: Any) -> None:
        batch = record_batch.build(0, -1, records, timestamp_ms=timestamp_ms, **fields)
        both(sides, lambda side: side.produce(topic, batch, "tx"))

    for number in range(_BATCHES + 1):
        if number == open_from:
            for producer_id in sorted(open_ids):
                end(producer_id)
        records = [
            Record(b"k%d" % chosen.randrange(12), None if chosen.random() < 0.2 else bytes([65 + number % 26]) * 90)
            for _ in range(chosen.randrange(1, 5))
        ]
        producer_id = chosen.choice([0, 0, 0, 11, 12]) if number < _BATCHES else 0
        fields: dict[str, Any] = {}
        if producer_id in open_ids and number < open_from and chosen.random() < 0.5:
            end(producer_id)
        elif producer_id:
            fields = {"transactional": True, "producer_id": producer_id, "producer_epoch": phase}
            fields["base_sequence"] = sequences[producer_id]
            sequences[producer_id] += len(records)
            open_ids.add(producer_id)
        produce(records, started_ms + phase * 600_000 + number, **fields)
    for number in range(12):
        produce([Record(b"f%d" % number, random.Random(number).randbytes(300))], started_ms + 3_000_000)


def await_cleaned(sides: tuple[Side, Side], before: set[str], count: int) -> None:
    """Return when both have cleaned all `count` logs further than `before`, equally far, and rest."""
    calm_count, last = 0, [["nothing"]]
    deadline = time.monotonic() + 120
    while calm_count < 6:
        assert time.monotonic() < deadline, f"not cleaned equally far within 120 s: {last}"
        time.sleep(0.5)
        now = [side.checkpoint() for side in sides]
        is_done = now[0] == now[1] and len(now[0]) == count and not before & set(now[0])
        calm_count = calm_count + 1 if is_done and now == last else 0
        last = now


def test_both_clean_to_the_same_batches(sides: tuple[Side, Side]) -> None:
    topics = [f"cleaned-{number}" for number in range(len(CODECS))]
    for number, topic in enumerate(topics):
        for side in sides:
            side.create(
                topic,
                cleanup_policy="compact",
                internal_segment_bytes="2500",
                segment_ms="99999999999",
                index_interval_bytes="500",
                delete_retention_ms="1" if number % 2 else "86400000",
                compression_type=CODECS[number],
            )
            side.alter(topic, NOT_YET)
    # The last transactions of the second phase are open, and end what may be cleaned.
    for phase, open_from in enumerate((_BATCHES, 60)):
        before = set(sides[0].checkpoint())
        for number, topic in enumerate(topics):
            fill(sides, topic, number, phase, open_from)
            for side in sides:
                side.alter(topic, NOW)
        await_cleaned(sides, before, len(topics))
        for topic in topics:
            both(sides, lambda side, topic=topic: side.ends(topic))
            both(sides, lambda side, topic=topic: side.producers(topic))
            both(sides, lambda side, topic=topic: side.read(topic, 0))
            both(sides, lambda side, topic=topic: side.read(topic, 1))
            both(sides, lambda side, topic=topic: side.segments(topic))
            for side in sides:
                side.alter(topic, NOT_YET)
