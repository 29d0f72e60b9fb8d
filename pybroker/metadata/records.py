"""Batches of the metadata log: records as objects on one side, Kafka's record batches (magic 2) on the other. Pure.

Metadata records have no key and a framed value; control records have a typed key (KIP-595, KIP-853). Batches of the log
are never compressed when we write them, but may be when we read Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from pybroker.metadata.errors import DamagedBatch, MetadataError
from pybroker.protocol import messages as m
from pybroker.protocol import metadata_records, record_batch
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.record_batch import Record
from pybroker.turns import run_at_once
from pybroker.values import Value

LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
VOTERS = 6

_CONTROL_NAMES = {
    LEADER_CHANGE: "LeaderChangeMessage",
    SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    KRAFT_VERSION: "KRaftVersionRecord",
    VOTERS: "VotersRecord",
}
# Kafka's own tools fail on a LeaderChangeMessage of version 1, and the other control records have only version 0.
_CONTROL_VERSION = 0
_CONTROL_KEY = struct.Struct(">hh")
_VERSION = struct.Struct(">h")


class VersionedRecord(NamedTuple):
    """A metadata record with the version it is, or shall be, written in."""

    record: Any
    version: int


class ControlRecord(NamedTuple):
    """A control record and its type, one of the constants above."""

    type: int
    record: Any


class MetadataBatch(Value):
    """One decoded batch: the record with index i has offset `base_offset + i`. `size_bytes` is its size in the file."""

    base_offset: int
    epoch: int
    time_ms: int
    size_bytes: int
    records: tuple[VersionedRecord | ControlRecord, ...]

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + len(self.records)


def encode_batch(base_offset: int, epoch: int, time_ms: int, records: Sequence[VersionedRecord]) -> bytes:
    """One batch of metadata records."""
    return run_at_once(encode_steps(base_offset, epoch, time_ms, records))


def encode_steps(
    base_offset: int, epoch: int, time_ms: int, records: Sequence[VersionedRecord]
) -> Generator[None, None, bytes]:
    """As `encode_batch`; yields where it may be interrupted."""
    batch = record_batch.Builder(base_offset, epoch, timestamp_ms=time_ms)
    for record, version in records:
        batch.add(Record(None, metadata_records.encode(record, version)))
        yield
    return batch.finish()


def encode_control_batch(base_offset: int, epoch: int, time_ms: int, records: Sequence[ControlRecord]) -> bytes:
    """One control batch."""
    encoded = [
        Record(_CONTROL_KEY.pack(_CONTROL_VERSION, kind), record.encode(_CONTROL_VERSION)) for kind, record in records
    ]
    return record_batch.build(base_offset, epoch, encoded, control=True, timestamp_ms=time_ms)


def decode_batch(data: bytes, where: str) -> MetadataBatch:
    """The one batch in `data`. MetadataError names `where` (a file) and the offset; DamagedBatch: it is none."""
    try:
        (batch,) = record_batch.parse(data)
    except ProtocolError as error:
        raise DamagedBatch(f"{where}: {error}") from error
    offset = batch.base_offset
    try:
        if len(batch.records) != batch.last_offset_delta + 1:
            raise MetadataError(f"{len(batch.records)} records for {batch.last_offset_delta + 1} offsets")
        records: list[VersionedRecord | ControlRecord] = []
        for record in batch.records:
            offset = record.offset
            if batch.is_control:
                records.append(_decode_control(record.key, record.value))
            else:
                if record.value is None:
                    raise MetadataError("a record without a value")
                records.append(VersionedRecord(*metadata_records.decode(record.value)))
    except (ProtocolError, MetadataError, ValueError) as error:
        raise MetadataError(
            f"{where}: the record at offset {offset} cannot be read: {error}. If a newer Apache Kafka wrote it, this "
            "version of pybroker is too old for the directory"
        ) from error
    return MetadataBatch(
        batch.base_offset, batch.partition_leader_epoch, batch.max_timestamp_ms, len(data), tuple(records)
    )


def _decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    if key is None or value is None or len(key) < _CONTROL_KEY.size:
        raise MetadataError("a control record without key or value")
    _, kind = _CONTROL_KEY.unpack_from(key)
    name = _CONTROL_NAMES.get(kind)
    if name is None:
        raise MetadataError(f"unknown control record type {kind}")
    # Each of these bodies begins with its own version.
    if len(value) < _VERSION.size:
        raise MetadataError(f"a control record of type {kind} with a value of {len(value)} bytes")
    (version,) = _VERSION.unpack_from(value)
    record, _ = getattr(m, name).decode(version, value, 0)
    return ControlRecord(kind, record)
