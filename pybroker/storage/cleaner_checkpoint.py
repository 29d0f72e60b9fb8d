"""Kafka's `cleaner-offset-checkpoint` of one log dir: up to where each compacted log is clean.

Any thread, under one lock; writes block. Written after each pass, as Kafka does, so that a restart does not clean again
what is clean. The file is a hint: what is lost with it is work, not records.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Container
from pathlib import Path

from pybroker.storage import offset_checkpoint
from pybroker.storage.errors import StorageError
from pybroker.storage.offset_checkpoint import TopicPartition

logger = logging.getLogger(__name__)


class CleanerCheckpoint:
    """First dirty offsets by partition. A write that fails is logged: the offsets count all the same until the end of
    the process, and the next write tries again."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / offset_checkpoint.CLEANER_OFFSET
        self._offsets: dict[TopicPartition, int] = {}
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

    def put(self, partition: TopicPartition, offset: int) -> None:
        """The log is clean below `offset`. Blocks."""
        with self._lock:
            self._offsets[partition] = offset
            self._write()

    def forget(self, partition: TopicPartition) -> None:
        """The partition is gone: what comes under its name is dirty from its beginning. Blocks if it was cleaned."""
        with self._lock:
            if self._offsets.pop(partition, None) is not None:
                self._write()

    def _write(self) -> None:
        try:
            offset_checkpoint.write(self._path, self._offsets)
        except OSError as error:
            logger.error("%s cannot be written; after a restart logs are cleaned again: %s", self._path, error)
