"""Kafka's `cleaner-offset-checkpoint` of one log dir: up to where each compacted log is clean.

Any thread, under one lock; writes block. Written after each pass, as Kafka does, so that a restart does not clean again
what is clean. Losing the file costs work, not records. But it must not call records clean that came after a cut, or
they would stay beside newer records of the same keys. So it is lowered before a log that was cut goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from pybroker.storage.errors import StorageError
from pybroker.storage.files import offset_checkpoint
from pybroker.storage.files.offset_checkpoint import TopicPartition

logger = logging.getLogger(__name__)


class CleanerCheckpoint:
    """First dirty offsets by partition. A write that fails is logged: the offsets count all the same until the end of
    the process, and the next write tries again."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / offset_checkpoint.CLEANER_OFFSET
        self._offsets: dict[TopicPartition, int] = {}
        self._is_written = True
        self._lock = threading.Lock()

    def load(self, present: Container[TopicPartition]) -> None:
        """Read what the file says of partitions that are `present` in the dir. Blocks. OSError."""
        try:
            found = offset_checkpoint.read(self._path)
        except StorageError as error:
            logger.warning("%s; the compacted logs of this dir are cleaned from their beginning", error)
            return
        with self._lock:
            self._offsets = {key: offset for key, offset in found.items() if key in present}

    def get(self, partition: TopicPartition) -> int | None:
        """The first dirty offset; None for a log that was never cleaned."""
        return self._offsets.get(partition)

    def put(self, partition: TopicPartition, offset: int, cut_offset: Callable[[], int] | None = None) -> None:
        """The log is clean below `offset`, but not above what it was cut to since, which `cut_offset` tells. Blocks."""
        with self._lock:
            # Asked under the lock: `lower` is told of a cut once it is made, so of one that is made later it is told
            # later, too.
            self._offsets[partition] = offset if cut_offset is None else min(offset, cut_offset())
            self._try_to_write()

    def lower(self, cut_offsets: Mapping[TopicPartition, int]) -> None:
        """The logs were cut there: whatever was clean, what lies above is not. Blocks. OSError."""
        with self._lock:
            for partition, offset in cut_offsets.items():
                if self._offsets.get(partition, offset) > offset:
                    self._offsets[partition] = offset
                    self._is_written = False
            if not self._is_written:
                self._write()

    def check(self, partition: TopicPartition, end_offset: int) -> None:
        """The log was opened and ends there. If it was clean above that, it is not the one that was cleaned, or was cut
        and nobody could note it any more: it is dirty from its beginning. Blocks then."""
        clean_offset = self.get(partition)
        if clean_offset is not None and clean_offset > end_offset:
            logger.warning(
                "%s-%d: it was cleaned up to %d, but ends at %d now; it is cleaned from its beginning",
                *partition,
                clean_offset,
                end_offset,
            )
            self.forget(partition)

    def forget(self, partition: TopicPartition) -> None:
        """The partition is gone: what comes under its name is dirty from its beginning. Blocks if it was cleaned."""
        with self._lock:
            if self._offsets.pop(partition, None) is not None:
                self._try_to_write()

    def _write(self) -> None:
        self._is_written = False
        offset_checkpoint.write(self._path, self._offsets)
        self._is_written = True

    def _try_to_write(self) -> None:
        try:
            self._write()
        except OSError as error:
            logger.error("%s cannot be written; after a restart logs are cleaned again: %s", self._path, error)
