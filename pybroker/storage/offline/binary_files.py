"""The fixed-size entries of .index, .timeindex, .txnindex and .snapshot files, and marks, decoded. Reads files; holds
nothing.

Formats: big-endian; Apache Kafka's, as csrc/log/{offset_index,time_index,transaction_index,producer_snapshot}.h tell,
and that of csrc/log/recover/mark.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pybroker.protocol.record_batch import crc32c
from pybroker.storage.offline.small_files import read_whole

OFFSET_ENTRY = struct.Struct(">Ii")
TIME_ENTRY = struct.Struct(">qI")
TRANSACTION_ENTRY = struct.Struct(">hqqqq")
PRODUCER_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_HEAD = struct.Struct(">hII")
_SNAPSHOT_CRC_END = 6
SNAPSHOT_VERSION = 1
_MARK = struct.Struct(">hIqqq3I")
_MARK_CRC_END = 6
MARK_VERSION = 0


class TransactionEntry(NamedTuple):
    """An aborted transaction: its first record, its abort marker, and the last stable offset behind it."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerEntry(NamedTuple):
    """A producer snapshot's entry for one producer. -1: none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


class ProducerSnapshot(NamedTuple):
    """A whole snapshot. `problem` says what is wrong with the file, "" when nothing is."""

    version: int
    crc: int
    entries: tuple[ProducerEntry, ...]
    problem: str


class Mark(NamedTuple):
    """Below `offset`, which is at `position` of the segment, a log need not be read after an unclean stop."""

    offset: int
    base_offset: int
    position: int
    offset_entries: int
    time_entries: int
    transaction_entries: int


def whole_entries(data: bytes, entry: struct.Struct) -> tuple[bytes, int, int]:
    """(the entries in use, bytes of preallocated zeros behind them, bytes left over that are no whole entry)."""
    rest = len(data) % entry.size
    whole = data[: len(data) - rest]
    used = -(-len(whole.rstrip(b"\0")) // entry.size) * entry.size
    return whole[:used], len(whole) - used, rest


def offset_entries(data: bytes, base_offset: int) -> Iterator[tuple[int, int]]:
    """(offset, position)."""
    return ((base_offset + relative, position) for relative, position in OFFSET_ENTRY.iter_unpack(data))


def time_entries(data: bytes, base_offset: int) -> Iterator[tuple[int, int]]:
    """(timestamp in ms, offset)."""
    return ((timestamp, base_offset + relative) for timestamp, relative in TIME_ENTRY.iter_unpack(data))


def transaction_entries(data: bytes) -> list[TransactionEntry]:
    """Whole entries; a rest is left out."""
    whole = data[: len(data) // TRANSACTION_ENTRY.size * TRANSACTION_ENTRY.size]
    return [TransactionEntry._make(fields) for fields in TRANSACTION_ENTRY.iter_unpack(whole)]


def read_producer_snapshot(path: Path) -> ProducerSnapshot:
    """All of a snapshot; what cannot be decoded is left out and named in `problem`."""
    data = read_whole(path)
    if len(data) < _SNAPSHOT_HEAD.size:
        return ProducerSnapshot(-1, 0, (), f"{len(data)} bytes are less than a snapshot's header")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    body = data[_SNAPSHOT_HEAD.size :]
    whole = body[: len(body) // PRODUCER_ENTRY.size * PRODUCER_ENTRY.size]
    entries = tuple(ProducerEntry._make(fields) for fields in PRODUCER_ENTRY.iter_unpack(whole))
    if version != SNAPSHOT_VERSION:
        problem = f"version {version}, but only version {SNAPSHOT_VERSION} is known"
    elif crc32c(data[_SNAPSHOT_CRC_END:]) != crc:
        problem = "the CRC is not that of the bytes"
    elif count * PRODUCER_ENTRY.size != len(body):
        problem = f"{count} producers announced in {len(body)} bytes"
    else:
        problem = ""
    return ProducerSnapshot(version, crc, entries, problem)


def read_mark(path: Path) -> Mark | str:
    """The mark, or what is wrong with the file."""
    data = read_whole(path)
    if len(data) != _MARK.size:
        return f"{len(data)} bytes, but a mark has {_MARK.size}"
    version, crc, *fields = _MARK.unpack(data)
    if version != MARK_VERSION:
        return f"version {version}, but only version {MARK_VERSION} is known"
    if crc32c(data[_MARK_CRC_END:]) != crc:
        return "the CRC is not that of the bytes"
    return Mark._make(fields)
