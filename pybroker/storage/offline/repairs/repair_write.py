"""Writes the batches that are kept: segments with their indexes, as Apache Kafka would have written them.

Every file is new and synced before its writer is closed. Fails with `OSError`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from pybroker.native.walk import WalkRow
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.offline.binary_files import OFFSET_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY, TransactionEntry

# Kafka's default of index.interval.bytes; a broker lives with any.
_INDEX_INTERVAL_BYTES = 4096
_COPY_BYTES = 1 << 20
_EPOCH_POSITION = 12
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")


class SegmentWriter:
    """One new segment. Batches come in order; those that follow each other in the source are copied together."""

    def __init__(self, directory: Path, base_offset: int) -> None:
        self.base_offset = base_offset
        self._stem = directory / f"{base_offset:020d}"
        self._log: BinaryIO = open(self._path(".log"), "xb")  # noqa: SIM115  closed by finish
        self._index: list[bytes] = []
        self._times: list[bytes] = []
        self._largest_timestamp_ms = self._indexed_timestamp_ms = -1
        self._largest_at = base_offset
        self._since_entry_bytes = 0
        self._written_bytes = 0
        self._source: BinaryIO | None = None
        self._pending_from = self._pending_to = 0

    def _path(self, suffix: str) -> Path:
        return self._stem.with_name(self._stem.name + suffix)

    def add(self, source: BinaryIO, row: WalkRow, is_changed: bool) -> None:
        """The batch at `row.position` of `source`, with base offset and leader epoch as `row` has them."""
        if source is not self._source or row.position != self._pending_to:
            self._flush()
            self._source, self._pending_from = source, row.position
        self._pending_to = row.position + row.size_bytes
        self._index_batch(row)
        if is_changed:
            self._flush()
            self._patch(row)
        self._written_bytes += row.size_bytes
        self._since_entry_bytes += row.size_bytes

    def put(self, data: bytes) -> None:
        """A batch that no source has. It needs no entry of an index."""
        self._flush()
        self._log.write(data)
        self._written_bytes += len(data)
        self._since_entry_bytes += len(data)

    def _index_batch(self, row: WalkRow) -> None:
        if row.max_timestamp_ms > self._largest_timestamp_ms:
            self._largest_timestamp_ms, self._largest_at = row.max_timestamp_ms, row.last_offset
        if self._since_entry_bytes > _INDEX_INTERVAL_BYTES:
            self._index.append(OFFSET_ENTRY.pack(row.last_offset - self.base_offset, self._written_bytes))
            self._index_time()
            self._since_entry_bytes = 0

    def _index_time(self) -> None:
        if self._largest_timestamp_ms > self._indexed_timestamp_ms:
            self._times.append(TIME_ENTRY.pack(self._largest_timestamp_ms, self._largest_at - self.base_offset))
            self._indexed_timestamp_ms = self._largest_timestamp_ms

    def _flush(self) -> None:
        """Copy what is pending."""
        if self._source is None or self._pending_from == self._pending_to:
            return
        # No byte more than that: behind it there may be blocks that cannot be read.
        while self._pending_from < self._pending_to:
            wanted = min(self._pending_to - self._pending_from, _COPY_BYTES)
            data = os.pread(self._source.fileno(), wanted, self._pending_from)
            if not data:
                raise OSError(f"{self._source.name} became shorter while it was read")
            self._log.write(data)
            self._pending_from += len(data)

    def _patch(self, row: WalkRow) -> None:
        """Set base offset and leader epoch of the batch that was copied last; no CRC covers them."""
        end = self._log.tell()
        begin = end - row.size_bytes
        self._log.seek(begin)
        self._log.write(_INT64.pack(row.base_offset))
        self._log.seek(begin + _EPOCH_POSITION)
        self._log.write(_INT32.pack(row.leader_epoch))
        self._log.seek(end)

    def finish(self, aborted: Iterable[TransactionEntry]) -> None:
        """Write the rest, indexes included, and sync everything."""
        self._flush()
        self._log.flush()
        os.fsync(self._log.fileno())
        self._log.close()
        self._index_time()
        write_durably(self._path(".index"), b"".join(self._index))
        write_durably(self._path(".timeindex"), b"".join(self._times))
        entries = b"".join(TRANSACTION_ENTRY.pack(*entry) for entry in aborted)
        if entries:
            write_durably(self._path(".txnindex"), entries)
