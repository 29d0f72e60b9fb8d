"""`.pybroker_gap_offsets` of one log dir: below which offset of each log its cleaner may have taken the ends of
segments away.

Cleaning leaves gaps between segments, and so does a power cut that takes the end of a segment which was never synced
and leaves the next one. Recovery has to tell them apart: it goes on behind the former and ends the log at the latter.
So the offset is on the disk before a pass begins, and a gap above it was not the cleaner's.

It holds for as long as nobody else cleans. The file goes with a stop in order, because Apache Kafka may have the dir
next. A log that the file does not name is treated as Apache Kafka treats it. In the format of Kafka's offset
checkpoints. Any thread; what blocks says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Container
from pathlib import Path

from pybroker.storage.errors import StorageError
from pybroker.storage.files import offset_checkpoint
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.offset_checkpoint import TopicPartition

logger = logging.getLogger(__name__)

FILE_NAME = ".pybroker_gap_offsets"
UNKNOWN = -1


class GapCheckpoint:
    """Gap offsets by partition: what is noted counts at once, and is on the disk after `save`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._offsets: dict[TopicPartition, int] = {}
        self._saved: dict[TopicPartition, int] = {}
        self._lock = threading.Lock()
        #: Held across writes, which nobody waits for who only notes.
        self._writing = threading.Lock()

    def load(self, present: Container[TopicPartition]) -> None:
        """Read what the file says of partitions that are `present` in the dir. Blocks. OSError."""
        try:
            found = offset_checkpoint.read(self._path)
        except StorageError as error:
            logger.warning("%s; compacted logs of this dir are taken to have all that was synced", error)
            return
        with self._lock:
            self._saved = found
            self._offsets = {key: offset for key, offset in found.items() if key in present}

    def get(self, partition: TopicPartition) -> int:
        """UNKNOWN for a log whose gaps may all be a cleaner's."""
        return self._offsets.get(partition, UNKNOWN)

    def note(self, partition: TopicPartition, offset: int) -> None:
        """The gaps of the log lie below `offset`, which counts if it is above what was noted before."""
        with self._lock:
            self._offsets[partition] = max(offset, self.get(partition))

    def cap(self, partition: TopicPartition, end_offset: int) -> None:
        """The log ends at `end_offset`: if it was cut, what comes behind has not been cleaned."""
        with self._lock:
            if self.get(partition) > end_offset:
                self._offsets[partition] = end_offset

    def forget(self, partition: TopicPartition) -> None:
        """The log lies here no more."""
        with self._lock:
            self._offsets.pop(partition, None)

    def save(self) -> None:
        """Return when what was noted is on the disk. Blocks. OSError."""
        with self._writing:
            with self._lock:
                offsets = dict(self._offsets)
            if offsets != self._saved:
                offset_checkpoint.write(self._path, offsets)
                self._saved = offsets

    def remove(self) -> None:
        """Somebody else may have the dir next: the file goes, durably. Blocks. OSError."""
        with self._writing:
            if self._path.exists():
                self._path.unlink()
                fsync_directory(self._path.parent)
            self._saved = {}
