"""The bytes of an `Append`, compressed here, and the records of fetched batches. Pure."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass

import cramjam
import lz4.frame

from pybroker.protocol import record_batch
from tests.harness.differential.history import Append, RecordPlan

_CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_HEADER_BYTES = record_batch.HEADER_BYTES
_LENGTH_POSITION, _CRC_POSITION, _ATTRIBUTES_POSITION = 8, 17, 21
# One block of the framing in which producers put snappy: magic, version, compatible version, length.
_SNAPPY_MAGIC = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def _snappy(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return _SNAPPY_MAGIC + struct.pack(">i", len(block)) + block


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "snappy": _snappy,
    # Apache Kafka reads no blocks that depend on those before them.
    "lz4": lambda data: bytes(lz4.frame.compress(data, block_linked=False)),
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
}


def _value(plan: RecordPlan, name: str) -> bytes | None:
    """Bytes that tell which record this is, and that compress by about a half."""
    if plan.value_bytes is None:
        return None
    seed = f"{name} {plan.key} {plan.age_ms} ".encode()
    return (seed * (plan.value_bytes // len(seed) + 1))[: plan.value_bytes]


def build(append: Append, name: str, start_ms: int) -> bytes:
    """One batch as a producer sends it; `name` goes into the values, so that no two operations send the same."""
    records = [
        record_batch.Record(
            None if plan.key is None else plan.key.encode(),
            _value(plan, f"{name}.{number}"),
            (("source", name.encode()),) if plan.has_header else (),
            -1 if plan.age_ms is None else start_ms - plan.age_ms,
        )
        for number, plan in enumerate(append.records)
    ]
    producer_id, epoch, sequence = append.producer or (-1, -1, -1)
    first_ms = records[0].timestamp_ms
    assert first_ms is not None
    batch = record_batch.build(
        0,
        -1,
        records,
        timestamp_ms=first_ms,
        transactional=append.transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return batch if append.codec == "none" else compressed(batch, append.codec, _COMPRESS[append.codec])


def compressed(batch: bytes, codec: str, compress: Callable[[bytes], bytes]) -> bytes:
    """The same batch with its records put through `compress`."""
    attributes = struct.unpack_from(">h", batch, _ATTRIBUTES_POSITION)[0] | _CODEC_IDS[codec]
    payload = compress(batch[_HEADER_BYTES:])
    body = struct.pack(">h", attributes) + batch[_ATTRIBUTES_POSITION + 2 : _HEADER_BYTES] + payload
    head = bytearray(batch[:_ATTRIBUTES_POSITION])
    struct.pack_into(">i", head, _LENGTH_POSITION, _HEADER_BYTES - 12 + len(payload))
    struct.pack_into(">I", head, _CRC_POSITION, record_batch.crc32c(body))
    return bytes(head) + body


@dataclass(frozen=True)
class SeenRecord:
    """A record as a consumer sees it. `marker` says what a control record stands for."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: record_batch.Headers
    producer: tuple[int, int]
    transactional: bool
    marker: str = ""

    def short(self) -> str:
        """For messages to people."""
        value = "tombstone" if self.value is None else f"{len(self.value)} bytes"
        what = self.marker or f"{self.key!r}: {value}"
        return f"{self.offset} ({what} at {self.timestamp_ms})"


_MARKERS = {0: "abort", 1: "commit"}


def seen_records(data: bytes, from_offset: int) -> tuple[list[SeenRecord], int]:
    """Those at or after an offset, and the offset after the last batch."""
    seen: list[SeenRecord] = []
    next_offset = from_offset
    for batch in record_batch.parse(data):
        next_offset = max(next_offset, batch.last_offset + 1)
        seen += [_seen(batch, each) for each in batch.records if each.offset >= from_offset]
    return seen, next_offset


def _seen(batch: record_batch.RecordBatch, record: record_batch.Record) -> SeenRecord:
    assert record.timestamp_ms is not None
    producer = (batch.producer_id, batch.producer_epoch)
    if batch.is_control:
        assert record.key is not None
        marker = _MARKERS[struct.unpack(">hh", record.key)[1]]
        return SeenRecord(record.offset, record.timestamp_ms, None, None, (), producer, True, marker)
    return SeenRecord(
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        record.headers,
        producer,
        batch.is_transactional,
    )
