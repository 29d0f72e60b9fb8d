"""Saves records when a ring and its log are not as their broker left them. The ring has a damaged header, or a failing
disk has given back a file shorter than it was written.

The bytes in a ring prove themselves. The byte at a position of a segment lies in its ring at that position modulo the
ring's size, and rings are emptied before another log gets them. So a batch is the log's next one if it lies where the
log's file ends, begins with the next offset and has the right CRC. The one behind it is found the same way. That holds
whatever the header says, and below the ring's start too: bytes that are in the file stay in the ring until others take
their place. Blocks; fails with `OSError` and `NativeError`.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from pybroker.native import crc32c
from pybroker.native.rings import RingFile
from pybroker.native.walk import EVERY, SegmentWalk
from pybroker.storage.files.atomic import fsync_directory, sync_or_forget
from pybroker.storage.files.regular_file import opener
from pybroker.values import Value

#: base offset, length, leader epoch, magic, CRC, attributes, last offset delta
_BATCH = struct.Struct(">qiibIhi")
_FRAME_BYTES = 12
_CRC_END = 21
_MAGIC = 2


class Saved(Value):
    """The batches written behind a log's end."""

    byte_count: int
    record_count: int


def salvage(ring: RingFile, log: Path) -> Saved:
    """Write what goes on at the end of `log`'s newest segment into it, durably. Doing it again comes to the same."""
    segment = newest_segment(log)
    if segment is None:
        return Saved(0, 0)
    position, next_offset = end_of(segment)
    content = _content(ring, position)
    byte_count, end_offset = _chain(content, next_offset)
    if byte_count > 0:
        _write(segment, position, content[:byte_count])
    return Saved(byte_count, end_offset - next_offset)


def is_cut(ring: RingFile, log: Path) -> bool:
    """Whether the log ends before the ring begins: the disk has lost what had been written and not synced."""
    segment, newest = _segment_of(ring, log), newest_segment(log)
    if not ring.is_sealed or (newest is not None and newest.name > segment.name):
        return False
    return newest != segment or segment.stat().st_size < ring.start_position


def regain(ring: RingFile, log: Path, *, look: bool = False) -> int | None:
    """Bring all that follows the end of a log that is cut into it, durably, up to the ring's end; how many bytes.
    `look`: only say so. None, and nothing is changed: the ring has not all of it any more, or speaks of another log."""
    segment, newest = _segment_of(ring, log), newest_segment(log)
    position, next_offset = (0, ring.segment_base) if newest is None else end_of(newest)
    if newest != segment:
        if next_offset != ring.segment_base:
            return None
        position = 0
    wanted_bytes = ring.end_position - position
    if not 0 <= wanted_bytes <= ring.ring_bytes:
        return None
    content = _content(ring, position)[:wanted_bytes]
    if _chain(content, next_offset)[0] != wanted_bytes:
        return None
    if not look:
        _write(segment, position, content)
    return wanted_bytes


def _segment_of(ring: RingFile, log: Path) -> Path:
    return log / f"{ring.segment_base:020}.log"


def _content(ring: RingFile, position: int) -> bytes:
    """The ring's bytes from `position` of the segment on, if it has them."""
    with open(ring.path, "rb", opener=opener) as file:
        content = file.read(ring.ring_bytes)
    place = position % ring.ring_bytes
    return content[place:] + content[:place]


def _write(segment: Path, position: int, content: bytes) -> None:
    """The file has `content` from `position` on, and nothing behind it."""
    is_new = not segment.exists()
    with open(segment, "wb" if is_new else "r+b", opener=opener) as file:
        file.truncate(position)
        file.seek(position)
        try:
            file.write(content)
            file.flush()
            sync_or_forget(file.fileno())
        except OSError:
            # It is in memory no more, but for its length, by which it would look as if it were there.
            with contextlib.suppress(OSError):
                os.ftruncate(file.fileno(), position)
            raise
    if is_new:
        fsync_directory(segment.parent)


def newest_segment(log: Path) -> Path | None:
    """The .log that is written to."""
    name = max((each for each in os.listdir(log) if each.endswith(".log") and each[0].isdigit()), default=None)
    return None if name is None else log / name


def end_of(segment: Path) -> tuple[int, int]:
    """(position, offset) behind the last of the intact batches from the segment's beginning on."""
    position, offset = 0, int(segment.stem)
    for row in SegmentWalk().rows(segment, offset, wanted=EVERY):
        if not (row.is_batch and row.is_intact) or row.position != position:
            break
        position, offset = row.position + row.size_bytes, row.last_offset + 1
    return position, offset


def _chain(content: bytes, next_offset: int) -> tuple[int, int]:
    """How many bytes of `content` are intact batches from `next_offset` on, and the offset behind them."""
    end = 0
    while len(content) - end >= _BATCH.size:
        base_offset, length, _, magic, checksum, _, last_offset_delta = _BATCH.unpack_from(content, end)
        batch_end = end + _FRAME_BYTES + length
        is_next = magic == _MAGIC and base_offset == next_offset and last_offset_delta >= 0
        if not is_next or not end + _CRC_END < batch_end <= len(content):
            break
        if crc32c(content[end + _CRC_END : batch_end]) != checksum:
            break
        end, next_offset = batch_end, base_offset + last_offset_delta + 1
    return end, next_offset
