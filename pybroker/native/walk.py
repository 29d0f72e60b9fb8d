"""`SegmentWalk`: the batches of segment files, read by the C extension without a broker.

Blocking: for tools, on any one thread at a time. A failed read raises `NativeError`. `csrc/include/pybroker.h` tells
the meaning of flags and how a walk goes past damage.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from pybroker.native.bindings import check, ffi, lib, new_failure
from pybroker.values import Value

CRC = 1
HEADER = 2
GAP = 4
BACK = 8
EPOCH = 16
CONTROL = 32
TRANSACTIONAL = 64
SEQUENCE = 128
OLD_MAGIC = 256
RECORDS = 512
GARBAGE = 1024
ZEROS = 2048
INDEX = 4096
TIME = 8192
EVERY = 16384
UNREADABLE = 32768
INNER = 65536

NOT_A_BATCH = GARBAGE | INDEX | TIME
"""Rows with one of these are about something else than a batch."""

_ROW = struct.Struct("<7qI4iI3i2hHh4x")
_ROWS_AT_ONCE = 1024
_STEPS = 8

assert _ROW.size == ffi.sizeof("pb_walk_row")


class WalkRow(NamedTuple):
    """One batch or one finding. Times in ms; see `pb_walk_row` for what INDEX and TIME rows carry where."""

    position: int
    size_bytes: int
    base_offset: int
    expected_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    flags: int
    leader_epoch: int
    last_offset_delta: int
    base_sequence: int
    record_count: int
    crc: int
    expected_sequence: int
    coordinator_epoch: int
    number: int
    control_type: int
    producer_epoch: int
    attributes: int
    magic: int

    @property
    def last_offset(self) -> int:
        """The last offset of a batch."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_batch(self) -> bool:
        """Whether the row is about a batch."""
        return not self.flags & NOT_A_BATCH

    @property
    def is_intact(self) -> bool:
        """A batch whose CRC is right."""
        return not self.flags & (NOT_A_BATCH | CRC)


class WalkTotals(Value):
    """Sums over all files walked so far. `sizes` has (smallest size in bytes, count) of batches, ascending."""

    bytes: int
    damaged_bytes: int
    batches: int
    records: int
    control_batches: int
    transactional_batches: int
    old_magic_messages: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    file_max_timestamp_ms: int
    file_first_offset: int
    end_offset: int
    codec_batches: tuple[int, ...]
    codec_bytes: tuple[int, ...]
    deep_batches: int
    deep_records: int
    null_keys: int
    stored_bytes: int
    plain_bytes: int
    sizes: tuple[tuple[int, int], ...]


class SegmentWalk:
    """Goes over the segments of one partition, in order; what it learned of one holds for the next."""

    def __init__(self) -> None:
        failure = new_failure()
        out = ffi.new("pb_walk **")
        check(lib.pb_walk_open(out, failure), failure)
        self._walk = ffi.gc(out[0], lib.pb_walk_close)
        self._rows = ffi.new("pb_walk_row[]", _ROWS_AT_ONCE)

    def rows(
        self,
        path: os.PathLike[str],
        base_offset: int,
        *,
        wanted: int = 0,
        index: bytes = b"",
        time_index: bytes = b"",
        deep_every: int = 0,
    ) -> Iterator[WalkRow]:
        """The rows of the next file. `index` and `time_index` are whole entries; `wanted` are flags that make a batch a
        row."""
        failure = new_failure()
        name, index_bytes, time_bytes = ffi.from_buffer(os.fsencode(path) + b"\0"), *_buffers(index, time_index)
        file = ffi.new(
            "pb_walk_file *",
            {
                "path": name,
                "base_offset": base_offset,
                "index": index_bytes,
                "index_length": len(index),
                "time_index": time_bytes,
                "time_index_length": len(time_index),
                "wanted": wanted,
                "deep_every": deep_every,
            },
        )
        check(lib.pb_walk_begin(self._walk, file, failure), failure)
        while True:
            count = lib.pb_walk_next(self._walk, self._rows, _ROWS_AT_ONCE, failure)
            if count < 0:
                check(count, failure)
            # A copy: whoever takes rows slowly may let another file begin.
            yield from map(WalkRow._make, _ROW.iter_unpack(ffi.buffer(self._rows, count * _ROW.size)[:]))
            if count < _ROWS_AT_ONCE:
                return

    def totals(self) -> WalkTotals:
        """Sums so far."""
        out = ffi.new("pb_walk_totals *")
        lib.pb_walk_sum(self._walk, out)
        return WalkTotals(
            bytes=out.bytes,
            damaged_bytes=out.damaged_bytes,
            batches=out.batches,
            records=out.records,
            control_batches=out.control_batches,
            transactional_batches=out.transactional_batches,
            old_magic_messages=out.old_magic_messages,
            min_timestamp_ms=out.min_timestamp,
            max_timestamp_ms=out.max_timestamp,
            file_max_timestamp_ms=out.file_max_timestamp,
            file_first_offset=out.file_first_offset,
            end_offset=out.end_offset,
            codec_batches=tuple(out.codec_batches),
            codec_bytes=tuple(out.codec_bytes),
            deep_batches=out.deep_batches,
            deep_records=out.deep_records,
            null_keys=out.null_keys,
            stored_bytes=out.stored_bytes,
            plain_bytes=out.plain_bytes,
            sizes=tuple((_bucket_bytes(bucket), count) for bucket, count in enumerate(out.sizes) if count > 0),
        )


def _buffers(*each: bytes) -> list[Any]:
    return [ffi.from_buffer(data) for data in each]


def _bucket_bytes(bucket: int) -> int:
    """The smallest value in a bucket of the C histograms: eight steps per power of two."""
    if bucket < _STEPS:
        return bucket
    power, step = divmod(bucket, _STEPS)
    return (_STEPS + step) << (power - 1)
