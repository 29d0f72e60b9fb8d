"""The files of `__cluster_metadata-0`: names, listing, and reading segments batch by batch.

Blocks on file reads; used at start and from the log's own thread. Fails with `MetadataError` for content that makes no
sense and `OSError` for the disk.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pybroker.metadata.errors import DamagedBatch
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.record_batch import crc32c
from pybroker.storage.files.atomic import naming
from pybroker.storage.files.regular_file import open_regular, opener
from pybroker.values import Value

logger = logging.getLogger(__name__)

PARTITION_DIRECTORY = "__cluster_metadata-0"
#: The suffixes of the index files that every segment has.
INDEX_SUFFIXES = (".index", ".timeindex")

_SEGMENT_NAME = re.compile(r"(\d{20})\.log")
_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
# baseOffset, batchLength, partitionLeaderEpoch, magic, crc
_HEADER = struct.Struct(">qiibI")
_LENGTH_OFFSET_BYTES = 12
_MIN_BATCH_BYTES = 61
_CRC_START = 21
_LAST_OFFSET_DELTA_POSITION = 23
_MAX_TIMESTAMP = slice(35, 43)
_READ_BUFFER_BYTES = 256 * 1024
_FOOTER_TYPE = (4).to_bytes(2, "big")


class SnapshotId(NamedTuple):
    """A snapshot holds all records below `end_offset`; `epoch` is the epoch of the last of them. Ordered by offset."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """Kafka's name of the file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


class SegmentFile(Value):
    """One segment of the log."""

    path: Path
    base_offset: int


def segment_path(directory: Path, base_offset: int) -> Path:
    """Where the segment that begins at `base_offset` is."""
    return directory / f"{base_offset:020d}.log"


def make_index_files(segment: Path, *, emptied: bool = False) -> None:
    """Make the index files of a segment that are missing, empty; with `emptied` the others are emptied.

    Nothing but Apache Kafka's tools looks for them, so a disk that has no room for them is no failure.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if emptied else 0)
    for suffix in INDEX_SUFFIXES:
        try:
            os.close(open_regular(segment.with_suffix(suffix), flags))
        except OSError as error:
            logger.warning("%s; Apache Kafka's tools may not read %s", error, segment)


def list_segments(directory: Path) -> list[SegmentFile]:
    """Segments by base offset."""
    found = [(match, entry) for entry in directory.iterdir() if (match := _SEGMENT_NAME.fullmatch(entry.name))]
    return sorted((SegmentFile(entry, int(match[1])) for match, entry in found), key=lambda each: each.base_offset)


def first_timestamp(path: Path) -> int:
    """The largest timestamp of a segment's first batch, from which metadata.log.segment.ms counts; -1 for none."""
    with naming(path), open(path, "rb", opener=opener) as file:
        head = file.read(_MIN_BATCH_BYTES)
    return int.from_bytes(head[_MAX_TIMESTAMP], "big", signed=True) if len(head) == _MIN_BATCH_BYTES else -1


def list_snapshots(directory: Path) -> list[SnapshotId]:
    """Finished snapshots, oldest first."""
    matches = (_SNAPSHOT_NAME.fullmatch(entry.name) for entry in directory.iterdir())
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match)


class SegmentReader:
    """Iterates over the valid batches of a file, as bytes, from its beginning.

    Stops at the first batch that is cut short, has a wrong CRC or breaks the sequence of offsets. Then `valid_bytes` is
    that position, and `problem` tells the fault (None at a clean end).
    """

    def __init__(self, path: Path, first_offset: int) -> None:
        self.path = path
        self.valid_bytes = 0
        self.next_offset = first_offset
        self.problem: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        with naming(self.path), open(self.path, "rb", buffering=_READ_BUFFER_BYTES, opener=opener) as file:
            remaining_bytes = os.fstat(file.fileno()).st_size
            while remaining_bytes > 0:
                head = file.read(_LENGTH_OFFSET_BYTES)
                size_bytes = self._batch_size(head, remaining_bytes)
                if size_bytes is None:
                    return
                batch = head + file.read(size_bytes - _LENGTH_OFFSET_BYTES)
                if not self._is_valid(batch, size_bytes):
                    return
                yield batch
                (last_offset_delta,) = struct.unpack_from(">i", batch, _LAST_OFFSET_DELTA_POSITION)
                self.next_offset += last_offset_delta + 1
                self.valid_bytes += size_bytes
                remaining_bytes -= size_bytes

    def _batch_size(self, head: bytes, remaining_bytes: int) -> int | None:
        if len(head) < _LENGTH_OFFSET_BYTES:
            self.problem = "a batch header cut short"
            return None
        base_offset, length_bytes = struct.unpack(">qi", head)
        size_bytes = int(length_bytes) + _LENGTH_OFFSET_BYTES
        if not _MIN_BATCH_BYTES <= size_bytes <= remaining_bytes:
            self.problem = f"a batch of {size_bytes} bytes where {remaining_bytes} are left"
            return None
        if base_offset != self.next_offset:
            self.problem = f"a batch at offset {base_offset} where {self.next_offset} is due"
            return None
        return size_bytes

    def _is_valid(self, batch: bytes, size_bytes: int) -> bool:
        if len(batch) != size_bytes:
            self.problem = "a batch cut short"
            return False
        _, _, _, magic, crc = _HEADER.unpack_from(batch)
        if magic != 2:
            self.problem = f"a batch of magic {magic}"
        elif crc32c(batch[_CRC_START:]) != crc:
            self.problem = "a batch with a wrong CRC"
        elif struct.unpack_from(">i", batch, _LAST_OFFSET_DELTA_POSITION)[0] < 0:
            self.problem = "a batch with a negative number of records"
        return self.problem is None


def read_snapshot_batches(path: Path) -> Iterator[bytes]:
    """All batches of a finished snapshot file. A snapshot is renamed only when whole, so anything else is damage:
    DamagedBatch."""
    reader = SegmentReader(path, 0)
    last = b""
    for last in reader:
        yield last
    problem = reader.problem
    if problem is None and not _ends_snapshot(last):
        problem = "no end of the snapshot"
    if problem is not None:
        raise DamagedBatch(
            f"{path}: {problem} at position {reader.valid_bytes}: the snapshot is damaged; restore it from a backup"
        )


def _ends_snapshot(data: bytes) -> bool:
    """Whether a snapshot ends with this batch (KIP-630)."""
    if not data:
        return False
    try:
        (batch,) = record_batch.parse(data)
    except ProtocolError:
        return False
    key = batch.records[-1].key if batch.is_control and batch.records else None
    return key is not None and key[2:] == _FOOTER_TYPE
