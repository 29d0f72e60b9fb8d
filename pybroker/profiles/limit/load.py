"""The load on a broker: each path's requests, made once and sent again and again. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

from pybroker.native.measure import Exchange
from pybroker.profiles.limit.connection import frame
from pybroker.profiles.measurement.plan import KIB, MIB, size_name
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record

PARTITION_COUNT = 4
PRODUCE_VERSION = 9
FETCH_VERSION = 12
_RECORD_BYTES = 1000
#: Bytes of a batch and of each record beside the values.
_BATCH_OVERHEAD_BYTES = 61
_RECORD_OVERHEAD_BYTES = 12
_WAIT_MS = 30_000
#: An answer to a fetch holds whole batches, so it is somewhat shorter than what was asked for.
_FULL_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class ProducePath:
    """Batches of up to `batch_bytes` to the first `partition_count` partitions of a topic."""

    batch_bytes: int
    connection_count: int
    in_flight: int
    partition_count: int

    @property
    def name(self) -> str:
        """produce.256KiB, or round_trip.1KiB for one request at a time."""
        lone = self.connection_count * self.in_flight == 1
        return f"{'round_trip' if lone else 'produce'}.{size_name(self.batch_bytes)}"


@dataclass(frozen=True, slots=True)
class FetchPath:
    """Answers of up to `fetch_bytes`, one under way for each of the four partitions."""

    fetch_bytes: int

    @property
    def name(self) -> str:
        """fetch.1MiB."""
        return f"fetch.{size_name(self.fetch_bytes)}"


PRODUCE_PATHS = (
    ProducePath(256 * KIB, 1, 5, 1),
    ProducePath(16 * KIB, 4, 5, PARTITION_COUNT),
    ProducePath(KIB, 16, 1, PARTITION_COUNT),
    ProducePath(KIB, 1, 1, 1),
)
FETCH_PATHS = (FetchPath(MIB), FetchPath(64 * KIB))
FETCHED = PRODUCE_PATHS[1]
"""Whose topic the fetches read."""


def record_count(batch_bytes: int) -> int:
    """Records in a batch of at most that size."""
    return max(1, (batch_bytes - _BATCH_OVERHEAD_BYTES) // (_RECORD_BYTES + _RECORD_OVERHEAD_BYTES))


def batch(batch_bytes: int, timestamp_ms: int = 0) -> bytes:
    """Records of 1,000 bytes, or what fits, that nothing compresses; the same ones each time."""
    count = record_count(batch_bytes)
    value_bytes = min(_RECORD_BYTES, batch_bytes - _BATCH_OVERHEAD_BYTES - _RECORD_OVERHEAD_BYTES)
    values = random.Random(batch_bytes)
    return record_batch.build(
        0, -1, [Record(None, values.randbytes(value_bytes)) for _ in range(count)], timestamp_ms=timestamp_ms
    )


def produce(path: ProducePath, topic: str, host: str, port: int, timestamp_ms: int) -> Exchange:
    """Acknowledged by the leader and all in sync."""
    records = batch(path.batch_bytes, timestamp_ms)

    def request(partition: int) -> bytes:
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
        topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        return frame(m.ProduceRequest(acks=-1, timeout_ms=_WAIT_MS, topic_data=topics), PRODUCE_VERSION)

    def response(error_code: int) -> m.ProduceResponse:
        row = m.ProduceResponse.PartitionProduceResponse(index=0, error_code=error_code)
        topics = [m.ProduceResponse.TopicProduceResponse(name=topic, partition_responses=[row])]
        return m.ProduceResponse(responses=topics)

    return Exchange(
        host,
        port,
        tuple(request(each) for each in range(path.partition_count)),
        connection_count=path.connection_count,
        in_flight=path.in_flight,
        error_position=_difference(response(0), response(1), PRODUCE_VERSION) - 1,
    )


def fetch(path: FetchPath, topic: str, host: str, port: int, end_offset: int) -> Exchange:
    """Through the offsets below `end_offset`, which every partition has, again and again."""
    batches = path.fetch_bytes // len(batch(FETCHED.batch_bytes))
    step = batches * record_count(FETCHED.batch_bytes)

    def request(partition: int, offset: int = 0) -> m.FetchRequest:
        wanted = m.FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=path.fetch_bytes
        )
        topics = [m.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])]
        return m.FetchRequest(
            max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=path.fetch_bytes, session_epoch=-1, topics=topics
        )

    def response(error_code: int) -> m.FetchResponse:
        row = m.FetchResponse.PartitionData(partition_index=0, error_code=error_code)
        topics = [m.FetchResponse.FetchableTopicResponse(topic=topic, partitions=[row])]
        return m.FetchResponse(responses=topics)

    frames = tuple(frame(request(each), FETCH_VERSION) for each in range(PARTITION_COUNT))
    last_byte = _first_difference(frames[0], frame(request(0, 1), FETCH_VERSION))
    return Exchange(
        host,
        port,
        frames,
        connection_count=PARTITION_COUNT,
        counter_position=last_byte - 7,
        counter_step=step,
        counter_count=max(1, end_offset // step),
        error_position=_difference(response(0), response(1), FETCH_VERSION) - 1,
        answer_min_bytes=int(path.fetch_bytes * _FULL_SHARE),
    )


def _difference(one: m.Message, other: m.Message, version: int) -> int:
    """Where the answers differ first, counted behind their length."""
    api_key = one.API_KEY
    assert api_key is not None
    header = m.ResponseHeader(correlation_id=1).encode(m.response_header_version(api_key, version))
    return len(header) + _first_difference(one.encode(version), other.encode(version))


def _first_difference(one: bytes, other: bytes) -> int:
    return next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
