"""`LogDirectory`: one log dir as the log manager sees it: what lies in it, its checkpoints, its clean-shutdown mark.

Methods that touch the disk block and run on worker threads, one at a time per dir; the asyncio loop reads the
attributes once `load` is done. Fails with `OSError`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from types import MappingProxyType

from pybroker.native.errors import NativeError
from pybroker.native.partition import PartitionState
from pybroker.profiles.measurement.result import Conclusion
from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.dirs.directory_space import DirectorySpace
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown, offset_checkpoint, partition_metadata
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.cleaner_checkpoint import CleanerCheckpoint
from pybroker.storage.files.gap_checkpoint import UNKNOWN, GapCheckpoint
from pybroker.storage.files.log_ends import LogEnds, RecordedEnds
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.files.topic_ids import TopicIds, topic_id_of
from pybroker.storage.rings import tail_rings

logger = logging.getLogger(__name__)

DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
NAME_BYTES = 255

_PARTITION_NAME = re.compile(r"([A-Za-z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_METADATA_TOPIC = "__cluster_metadata"
_FUTURE_NAME = re.compile(rf"({_PARTITION_NAME.pattern}\.[A-Za-z0-9_-]+){FUTURE_SUFFIX}")
_DELETED_NAME = re.compile(rf"\S+-\S+\.\S+{DELETED_SUFFIX}")  # as Apache Kafka's
_CHECKPOINTS = (offset_checkpoint.RECOVERY_POINT, offset_checkpoint.HIGH_WATERMARK, offset_checkpoint.LOG_START_OFFSET)


class LogDirectory:
    """One of log.dirs. `clean` says that its last broker closed it in order, under `previous_broker_epoch`; `loaded`
    that `load` got to its end."""

    def __init__(self, path: Path, directory_id: bytes) -> None:
        self.path = path
        self.directory_id = directory_id
        self.clean = False
        self.previous_broker_epoch = clean_shutdown.UNKNOWN_BROKER_EPOCH
        self.cleaner_checkpoint = CleanerCheckpoint(path)
        self.gap_checkpoint = GapCheckpoint(path)
        self.topic_ids = TopicIds(path)
        #: How far logs reached, and which segments they had.
        self.ends = LogEnds(path)
        #: Held while checkpoints are written: a caller that is cancelled leaves its thread behind.
        self._writing = threading.Lock()
        self._open_ends: Mapping[TopicPartition, RecordedEnds] = {}
        self.partitions: dict[TopicPartition, Path] = {}
        self.deleted: list[Path] = []
        #: Bytes that the last broker left in tail rings, and that `load` brought into the logs.
        self.replayed_bytes = 0
        #: Where these rings were; None: it had none.
        self.ring_directory: Path | None = None
        #: Copies of logs on their way here, and the names their originals get when the move is made.
        self.futures: list[tuple[TopicPartition, Path, str]] = []
        self.loaded = False
        #: How far metadata was applied here; None: nobody has recorded it.
        self.applied: AppliedMetadata | None = None
        #: Whether the record of that is damaged, so nobody knows.
        self.is_applied_unknown = False
        #: Why it is out of service; None while it is not.
        self.failure: str | None = None
        #: Whether flushes can be real, as found out at the start; None when nothing here promises durability.
        self.flush: Conclusion | None = None
        #: How much is free there, and how much has to be.
        self.space = DirectorySpace()
        #: Device and inode, by which a dir is known that is not what it was.
        self.identity: tuple[int, int] | None = None
        #: The checkpoints of partitions that are not open: as at the start, or when they were closed.
        self._not_open: dict[str, dict[TopicPartition, int]] = {}
        #: The content of the files.
        self._written: dict[str, dict[TopicPartition, int]] = {}

    def load(self) -> None:
        """Read marks and checkpoints, replay tail rings and list the partitions; from here on a crash is an unclean
        stop."""
        found = os.stat(self.path)
        self.identity = (found.st_dev, found.st_ino)
        self._load_applied()
        epoch = clean_shutdown.read(self.path)
        self.clean = epoch is not None
        self.ends.load(epoch)
        if epoch is not None:
            self.previous_broker_epoch = epoch
            # It may be from before the last session, if Apache Kafka had that one.
            self.gap_checkpoint.remove()
            clean_shutdown.remove(self.path)
        tail_rings.mend_topic_ids(self.path, self.directory_id)
        session = tail_rings.RingSession.read(self.path)
        self.ring_directory = None if session is None else session.directory
        self.replayed_bytes = tail_rings.replay(self.path, self.directory_id)
        for name in _CHECKPOINTS:
            offsets = self._not_open[name] = self._read(name)
            if offsets:
                self._written[name] = dict(offsets)
        for entry in sorted(self.path.iterdir()):
            if not entry.is_dir():
                continue
            if _DELETED_NAME.fullmatch(entry.name):
                self.deleted.append(entry)
            future = _FUTURE_NAME.fullmatch(entry.name)
            if future is not None:
                self.futures.append(((future[2], int(future[3])), entry, future[1] + DELETED_SUFFIX))
            match = _PARTITION_NAME.fullmatch(entry.name)
            if match is not None and match[1] != _METADATA_TOPIC:
                self.partitions[match[1], int(match[2])] = entry
        self.cleaner_checkpoint.load(self.partitions)
        self.gap_checkpoint.load(self.partitions)
        self.topic_ids.load(self.partitions)
        self.loaded = True

    def topic_id(self, partition: TopicPartition, path: Path, wanted: bytes) -> bytes | None:
        """The topic of a partition's directory; None: nothing says. `wanted` is the one that the metadata have under
        that name: a directory that was opened as that one last cannot be of an earlier one. Blocks. StorageError when
        what says it is damaged."""
        known = self.topic_ids.get(partition)
        found = topic_id_of(path, known)
        if found is None or found == wanted or known != wanted:
            return found
        logger.warning(
            "%s: its topic id is %s, but it was opened as %s, which the metadata have; partition.metadata is made anew",
            path,
            uuid_to_text(found),
            uuid_to_text(wanted),
        )
        partition_metadata.write(path, wanted)
        return wanted

    def _load_applied(self) -> None:
        try:
            self.applied = AppliedMetadata.read(self.path)
        except StorageError as error:
            logger.warning("%s; until the next start no directory of an unknown topic is renamed here", error)
            self.is_applied_unknown = True

    def note_applied(self, applied: AppliedMetadata) -> None:
        """Metadata up to there take effect here from now on. One that does not reach what was applied before changes
        nothing: it has lost records. Blocks where it is new."""
        if self.applied == applied or not (self.applied is None or self.applied.is_reached_by(applied)):
            return
        applied.write(self.path)
        self.applied = applied

    def may_set_aside(self, image: AppliedMetadata) -> bool:
        """Whether a partition that metadata up to `image` do not have is of a deleted topic, and not of one in records
        that the metadata have lost."""
        return not self.is_applied_unknown and (self.applied is None or self.applied.is_reached_by(image))

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return offset_checkpoint.read(self.path / name)
        except StorageError as error:
            logger.warning("%s; the logs of this dir are read from their beginning instead", error)
            return {}

    def recovery_point(self, partition: TopicPartition) -> int:
        """Everything below it was synced; 0 when unknown."""
        return self._not_open[offset_checkpoint.RECOVERY_POINT].get(partition, 0)

    def log_start_offset(self, partition: TopicPartition) -> int:
        """The log start offset of the last checkpoint; -1 when unknown."""
        return self._not_open[offset_checkpoint.LOG_START_OFFSET].get(partition, -1)

    def high_watermark(self, partition: TopicPartition) -> int:
        """The high watermark of the last checkpoint; 0 when unknown."""
        return self._not_open[offset_checkpoint.HIGH_WATERMARK].get(partition, 0)

    def forget(self, partition: TopicPartition) -> None:
        """The partition lies here no more: what comes under its name begins anew."""
        self.partitions.pop(partition, None)
        self.gap_checkpoint.forget(partition)
        self.topic_ids.forget(partition)
        self.ends.forget(partition)
        for offsets in self._not_open.values():
            offsets.pop(partition, None)

    def remember(self, partition: TopicPartition, last: PartitionState) -> None:
        """The partition is open no more, but lies here still: checkpoints go on saying what was true of it last."""
        self._not_open[offset_checkpoint.RECOVERY_POINT][partition] = last.recovery_point
        self._not_open[offset_checkpoint.HIGH_WATERMARK][partition] = last.high_watermark
        if last.log_start_offset > 0:
            self._not_open[offset_checkpoint.LOG_START_OFFSET][partition] = last.log_start_offset

    def tells_more(self, partition: TopicPartition, state: PartitionState) -> bool:
        """Whether checkpoints speak of more than a log has: it was cut since, or they are of an earlier topic of that
        name."""
        offsets = {
            offset_checkpoint.RECOVERY_POINT: state.recovery_point,
            offset_checkpoint.HIGH_WATERMARK: state.high_watermark,
            offset_checkpoint.LOG_START_OFFSET: state.log_start_offset,
        }
        return (
            any(self._written.get(name, {}).get(partition, 0) > offset for name, offset in offsets.items())
            or self.gap_checkpoint.get(partition) > state.log_end_offset
            or (self.cleaner_checkpoint.get(partition) or 0) > state.cut_offset
            or self._is_cut_since(partition, state)
        )

    def _is_cut_since(self, partition: TopicPartition, state: PartitionState) -> bool:
        """Whether the log was cut after its ends were recorded."""
        saved = self.ends.last_saved(partition)
        return saved is not None and saved.generation != state.cut_generation

    def write_checkpoints(
        self,
        states: Mapping[TopicPartition, PartitionState],
        ends: Mapping[TopicPartition, RecordedEnds] = MappingProxyType({}),
    ) -> None:
        """Write what changed since the last time. `states` are of the open partitions in this dir, and `ends` are their
        records. Partitions that lie here and could not be opened keep their entries in the files. Blocks."""
        written = {
            offset_checkpoint.RECOVERY_POINT: {key: each.recovery_point for key, each in states.items()},
            offset_checkpoint.HIGH_WATERMARK: {key: each.high_watermark for key, each in states.items()},
            offset_checkpoint.LOG_START_OFFSET: {
                key: each.log_start_offset for key, each in states.items() if each.log_start_offset > 0
            },
        }
        for name, offsets in written.items():
            self._add_closed(name, offsets, states)
        with self._writing:
            self._open_ends = ends
            # First, so that it names the recovery points before and after them.
            self.ends.save(ends, offset_checkpoint.content(written[offset_checkpoint.RECOVERY_POINT]))
            for name, offsets in written.items():
                self._write(name, offsets)
            for key, each in states.items():
                self.gap_checkpoint.cap(key, each.log_end_offset)
            self.gap_checkpoint.save()
            self.topic_ids.save()
            self.cleaner_checkpoint.lower({key: each.cut_offset for key, each in states.items()})

    def _add_closed(
        self, name: str, offsets: dict[TopicPartition, int], states: Mapping[TopicPartition, object]
    ) -> None:
        for key, offset in list(self._not_open[name].items()):
            if key in self.partitions and key not in states:
                offsets[key] = offset

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if self._written.get(name) != offsets:
            offset_checkpoint.write(self.path / name, offsets)
            self._written[name] = offsets

    def take_future(self, partition: TopicPartition, future: Path) -> None:
        """The copy becomes the log. Blocks."""
        path = self.path / f"{partition[0]}-{partition[1]}"
        os.rename(future, path)
        fsync_directory(self.path)
        self.partitions[partition] = path

    def adopt_checkpoints(self, partition: TopicPartition, other: LogDirectory) -> None:
        """Takes over the checkpoints that `other` had at the start for a partition that has moved here since."""
        for name, offsets in self._not_open.items():
            found = other._not_open[name].get(partition)
            if found is not None:
                offsets.setdefault(partition, found)
        clean_offset = other.cleaner_checkpoint.get(partition)
        if clean_offset is not None and self.cleaner_checkpoint.get(partition) is None:
            self.cleaner_checkpoint.put(partition, clean_offset)
        gap_offset = other.gap_checkpoint.get(partition)
        if gap_offset != UNKNOWN and self.gap_checkpoint.get(partition) == UNKNOWN:
            self.gap_checkpoint.note(partition, gap_offset)
        ends = other.ends.get(partition) if other.ends.is_ours and self.ends.is_ours else None
        if ends is not None and self.ends.get(partition) is None:
            self.ends.put(partition, ends)

    def is_closed(self, closed: Container[TopicPartition]) -> bool:
        """Whether all logs in here are `closed`, or those that are not were in order when the broker started."""
        return self.clean or (self.loaded and all(key in closed for key in self.partitions))

    def mark_clean(self, broker_epoch: int) -> None:
        """Everything in here is synced, and nothing of it in a tail ring: the last thing written. Blocks."""
        with self._writing:
            tail_rings.forget(self.path)
            self.gap_checkpoint.remove()
            self.ends.save(self._open_ends, None, broker_epoch)
            self.ends.forget_written()
            clean_shutdown.write(self.path, broker_epoch)

    def set_aside(self, partition: TopicPartition, path: Path, suffix: str) -> Path:
        """Rename a partition's directory as Kafka does, with DELETED_SUFFIX or STRAY_SUFFIX; the new path. Blocks."""
        topic, index = partition
        ending = f"-{index}.{uuid.uuid4().hex}{suffix}"
        renamed = path.with_name(topic[: NAME_BYTES - len(ending)] + ending)
        os.rename(path, renamed)
        fsync_directory(self.path)
        self.cleaner_checkpoint.forget(partition)
        return renamed


def is_partition(path: Path) -> bool:
    """Whether it is the directory of a partition that clients know of, by its name."""
    match = _PARTITION_NAME.fullmatch(path.name)
    return match is not None and match[1] != _METADATA_TOPIC and path.is_dir()


def remove_tree(path: Path) -> None:
    """Remove a directory that was set aside; what cannot be removed is logged and tried again at the next start."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        logger.warning("%s cannot be removed: %s", path, error)


def remove_gently(path: Path, drain: Callable[[str], None], is_stopping: Callable[[], bool]) -> None:
    """The same, one file after another, and of each most of it by `drain` first: a disk that is told of hundreds of MiB
    at once does nothing else meanwhile. Once the broker stops, what is left is left to the next start."""
    try:
        if path.is_symlink():
            path.unlink()  # what it leads to is not ours
            return
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if is_stopping():
                return
            if entry.is_file(follow_symlinks=False):
                with contextlib.suppress(NativeError):  # then it goes at once
                    drain(entry.path)
                os.unlink(entry.path)
    except OSError as error:
        logger.warning("%s cannot be removed: %s", path, error)
        return
    remove_tree(path)
