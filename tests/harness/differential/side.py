"""`Side`: one of the two brokers of a differential run, spoken to by raw requests over many topics at once.

Owned and used by one thread. Errors a broker answers are part of what is compared, so they are returned, not raised;
AssertionError only for what no history may cause (a topic that cannot be created).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.storage.files import offset_checkpoint
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.differential.history import EndTransaction
from tests.harness.kafka import KafkaBroker

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
_TOPIC_RESOURCE = 2
_SET = 0
_TOPICS_PER_REQUEST = 50
_TIMEOUT_MS = 60_000
_CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
T = TypeVar("T")
A = TypeVar("A")

#: For both: everything that happens from time to time happens often.
OVERRIDES = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "log.segment.delete.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "transaction.partition.verification.enable": "false",
    # The most it can be: by a record's own clock a producer is older than any that is alive.
    "producer.id.expiration.ms": str(2**31 - 1),
    "num.partitions": "1",
}


@dataclass(frozen=True)
class Place:
    """Where a timestamp, or an end of the log, was found."""

    error_code: int
    offset: int
    timestamp_ms: int


# A leader is elected a moment after a start or a topic's creation; until then nothing has been done.
_RETRIED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_RETRY_SECONDS = 30.0


def _led(
    call: Callable[[Mapping[str, T]], Mapping[str, A]],
    wanted: Mapping[str, T],
    code: Callable[[A], int],
    patience_seconds: float,
) -> dict[str, A]:
    """The answers of a call, asked again for topics that have no leader yet."""
    answers: dict[str, A] = {}
    deadline = time.monotonic() + patience_seconds
    left = dict(wanted)
    while left:
        answers.update(call(left))
        left = {topic: each for topic, each in left.items() if code(answers[topic]) in _RETRIED}
        if left:
            assert time.monotonic() < deadline, f"{len(left)} topics have no leader: {list(left)[:5]}"
            time.sleep(0.05)
    return {topic: answers[topic] for topic in wanted}


def _parts(values: Sequence[T], count: int = _TOPICS_PER_REQUEST) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), count):
        yield values[start : start + count]


class Side:
    """See the module. `broker` belongs to the caller. `patience_seconds`: for how long a topic may have no leader."""

    def __init__(
        self, name: str, broker: BrokerProcess | KafkaBroker, *, patience_seconds: float = _RETRY_SECONDS
    ) -> None:
        self.name = name
        self.broker = broker
        self._patience_seconds = patience_seconds
        self._client: ProtocolClient | None = None

    @property
    def log_dir(self) -> Path:
        """Where the topics' files are."""
        return self.broker.log_dir

    @property
    def client(self) -> ProtocolClient:
        """A connection, made at the first request after each start."""
        if self._client is None:
            self._client = ProtocolClient(self.broker.port, timeout_seconds=120)
        return self._client

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def stop(self, *, kill: bool) -> None:
        """A clean stop or SIGKILL; `start` brings it back over the same dir."""
        self.close()
        if kill:
            self.broker.kill()
        else:
            self.broker.stop()

    def start(self) -> None:
        """Start it again."""
        self.broker.start()

    def create(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Topics of one partition."""
        for part in _parts(list(topics.items())):
            wanted = [
                m.CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=1,
                    replication_factor=1,
                    configs=[
                        m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                        for key, value in config.items()
                    ],
                )
                for name, config in part
            ]
            answer = self.client.call(m.CreateTopicsRequest(topics=wanted, timeout_ms=_TIMEOUT_MS), 7)
            refused = [(each.name, each.error_code, each.error_message) for each in answer.topics if each.error_code]
            assert not refused, f"{self.name}: {refused[:3]}"

    def delete(self, topics: Sequence[str]) -> None:
        """Delete topics that exist."""
        for part in _parts(topics):
            wanted = [m.DeleteTopicsRequest.DeleteTopicState(name=name) for name in part]
            answer = self.client.call(m.DeleteTopicsRequest(topics=wanted, timeout_ms=_TIMEOUT_MS), 6)
            refused = [(each.name, each.error_code) for each in answer.responses if each.error_code]
            assert not refused, f"{self.name}: {refused[:3]}"

    def configure(self, changes: Mapping[str, Mapping[str, str]]) -> None:
        """Set some of the topics' settings."""
        for part in _parts([pair for pair in changes.items() if pair[1]]):
            resources = [
                m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=name,
                    configs=[
                        m.IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=_SET, value=value)
                        for key, value in config.items()
                    ],
                )
                for name, config in part
            ]
            answer = self.client.call(m.IncrementalAlterConfigsRequest(resources=resources), 1)
            refused = [(each.resource_name, each.error_message) for each in answer.responses if each.error_code]
            assert not refused, f"{self.name}: {refused[:3]}"

    def produce(self, batches: Mapping[str, bytes]) -> dict[str, tuple[int, int]]:
        """One batch to each topic: (error code, base offset)."""
        return _led(self._produce, batches, lambda answer: answer[0], self._patience_seconds)

    def _produce(self, batches: Mapping[str, bytes]) -> dict[str, tuple[int, int]]:
        answers = {}
        for part in _parts(list(batches.items())):
            data = [
                m.ProduceRequest.TopicProduceData(
                    name=name, partition_data=[m.ProduceRequest.PartitionProduceData(index=0, records=records)]
                )
                for name, records in part
            ]
            request = m.ProduceRequest(
                transactional_id="differential", acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=data
            )
            for each in self.client.call(request, 9).responses:
                (row,) = each.partition_responses
                answers[each.name] = (row.error_code, row.base_offset)
        return answers

    def list_offsets(self, timestamps: Mapping[str, int], isolation_level: int = 0) -> dict[str, Place]:
        """Of each topic the offset of a timestamp, or of `EARLIEST`, `LATEST`, `MAX_TIMESTAMP`."""
        return _led(
            lambda left: self._list_offsets(left, isolation_level),
            timestamps,
            lambda place: place.error_code,
            self._patience_seconds,
        )

    def _list_offsets(self, timestamps: Mapping[str, int], isolation_level: int) -> dict[str, Place]:
        answers = {}
        for part in _parts(list(timestamps.items())):
            topics = [
                m.ListOffsetsRequest.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        m.ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=0, current_leader_epoch=-1, timestamp=timestamp
                        )
                    ],
                )
                for name, timestamp in part
            ]
            request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
            for each in self.client.call(request, 7).topics:
                (row,) = each.partitions
                answers[each.name] = Place(row.error_code, row.offset, row.timestamp)
        return answers

    def delete_records(self, offsets: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Of each topic what lies before an offset: (error code, low watermark)."""
        return _led(self._delete_records, offsets, lambda answer: answer[0], self._patience_seconds)

    def _delete_records(self, offsets: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        answers = {}
        for part in _parts(list(offsets.items())):
            topics = [
                m.DeleteRecordsRequest.DeleteRecordsTopic(
                    name=name,
                    partitions=[m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)],
                )
                for name, offset in part
            ]
            for each in self.client.call(m.DeleteRecordsRequest(topics=topics, timeout_ms=_TIMEOUT_MS), 2).topics:
                (row,) = each.partitions
                answers[each.name] = (row.error_code, row.low_watermark)
        return answers

    def end_transactions(self, ends: Mapping[str, EndTransaction]) -> dict[str, int]:
        """Write a marker to each topic; its error code."""
        answers = {}
        for name, end in ends.items():
            topics = [m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=[0])]
            marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=end.producer_id,
                producer_epoch=end.producer_epoch,
                transaction_result=end.commit,
                topics=topics,
                coordinator_epoch=end.coordinator_epoch,
            )
            (answer,) = self.client.call(m.WriteTxnMarkersRequest(markers=[marker]), 1).markers
            answers[name] = int(answer.topics[0].partitions[0].error_code)
        return answers

    def fetch(self, topic: str, offset: int, *, isolation_level: int = 0) -> m.FetchResponse.PartitionData:
        """One answer, which may be empty at the log's end."""
        return self.client.fetch(topic, offset, isolation_level=isolation_level)

    def producers(self, topics: Sequence[str]) -> dict[str, list[m.DescribeProducersResponse.ProducerState]]:
        """What each partition remembers of its producers."""
        answers = {}
        for part in _parts(topics):
            wanted = [m.DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0]) for name in part]
            for each in self.client.call(m.DescribeProducersRequest(topics=wanted), 0).topics:
                answers[each.name] = each.partitions[0].active_producers
        return answers

    def cleaned_offsets(self) -> dict[str, int]:
        """How far the cleaner has come with each topic, by its checkpoint."""
        path = self.log_dir / _CLEANER_CHECKPOINT
        checkpoint = offset_checkpoint.read(path) if path.exists() else {}
        return {topic: offset for (topic, _), offset in checkpoint.items()}

    def segments(self, topic: str) -> tuple[tuple[int, int], ...]:
        """(base offset, bytes) of each segment file that is part of the log. None before the broker has made its
        directory, which may be a while after the topic was created."""
        found = []
        directory = self.log_dir / f"{topic}-0"
        if not directory.is_dir():
            return ()
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    if entry.name.endswith(".log"):
                        found.append((int(entry.name[:-4]), entry.stat().st_size))
                except FileNotFoundError:  # deleted meanwhile: the next look sees the rest
                    continue
        return tuple(sorted(found))
