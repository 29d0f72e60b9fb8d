"""The kind of a path: a log dir, a partition's directory, or one file; and the contents of each. Lists names, reads
nothing.

Fails with `StorageError` for a path that is none of these and `OSError` for the disk.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from pybroker.storage.dirs import format_version
from pybroker.storage.errors import StorageError
from pybroker.storage.files import (
    applied_metadata,
    clean_shutdown,
    epoch_checkpoint,
    gap_checkpoint,
    log_ends,
    meta_properties,
    offset_checkpoint,
    partition_metadata,
    topic_ids,
)
from pybroker.storage.rings import ring_notes, tail_rings

METADATA_TOPIC = "__cluster_metadata"
QUORUM_STATE = "quorum-state"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
LOCK = ".lock"
OFFSET_CHECKPOINTS = (
    offset_checkpoint.RECOVERY_POINT,
    offset_checkpoint.HIGH_WATERMARK,
    offset_checkpoint.LOG_START_OFFSET,
    offset_checkpoint.CLEANER_OFFSET,
)

_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<index>0|[1-9][0-9]{0,9})")
_ASIDE = re.compile(r".+-[0-9]{1,10}\.[0-9a-f]{32}-(?P<why>delete|stray|future)")
_SEGMENT_FILE = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)")
_LEFTOVER = re.compile(r"(?P<name>.+)\.(?P<why>deleted|cleaned|swap|tmp|part|damaged)(-\d+(\.\d+)?)?")
_METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_LARGEST_OFFSET = (1 << 63) - 1
_MARK_NAME = ".pybroker_mark"
#: Files of a log dir that no tool reads.
_OTHERS = frozenset(
    (
        LOCK,
        tail_rings.FILE_NAME,
        format_version.FILE_NAME,
        applied_metadata.FILE_NAME,
        topic_ids.FILE_NAME,
        log_ends.FILE_NAME,
        log_ends.WRITTEN_NAME,
    )
)
_REMOTE_CACHE = "remote-log-index-cache"


class FileKind(Enum):
    """The content of a file, by its name."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    MARK = "mark"
    METADATA_SNAPSHOT = "checkpoint"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    OFFSETS = "offset-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    META_PROPERTIES = "meta.properties"
    QUORUM_STATE = "quorum-state"
    CLEAN_SHUTDOWN = "clean-shutdown"


_NAMED = {
    _MARK_NAME: FileKind.MARK,
    epoch_checkpoint.FILE_NAME: FileKind.LEADER_EPOCHS,
    partition_metadata.FILE_NAME: FileKind.PARTITION_METADATA,
    meta_properties.FILE_NAME: FileKind.META_PROPERTIES,
    QUORUM_STATE: FileKind.QUORUM_STATE,
    clean_shutdown.FILE_NAME: FileKind.CLEAN_SHUTDOWN,
    BOOTSTRAP_CHECKPOINT: FileKind.METADATA_SNAPSHOT,
    gap_checkpoint.FILE_NAME: FileKind.OFFSETS,
    **dict.fromkeys(OFFSET_CHECKPOINTS, FileKind.OFFSETS),
}


def _segment_file(name: str) -> tuple[int, FileKind] | None:
    """Base offset and kind of a file that a broker names so."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > _LARGEST_OFFSET:
        return None
    return int(match[1]), FileKind(match[2])


def file_kind(path: Path) -> FileKind | None:
    """By name, what a broker was writing or deleting included; None when no broker names a file so."""
    name = path.name
    leftover = _LEFTOVER.fullmatch(name)
    if leftover is not None:
        name = leftover["name"]
    if found := _segment_file(name):
        return found[1]
    if _METADATA_SNAPSHOT.fullmatch(name):
        return FileKind.METADATA_SNAPSHOT
    return _NAMED.get(name)


def _would_wait(path: Path) -> bool:
    """Whether it is a pipe or a device, which whoever reads it may have to wait for."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False  # reading it says why
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@dataclass(slots=True)
class Segment:
    """One segment's files; those that are absent are None."""

    base_offset: int
    log: Path | None = None
    index: Path | None = None
    time_index: Path | None = None
    transaction_index: Path | None = None


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """A snapshot of the metadata log: all below `end_offset`, whose last record is of `epoch`."""

    end_offset: int
    epoch: int
    path: Path


def metadata_snapshot(path: Path) -> MetadataSnapshot:
    """By the file's name; 0 and 0 for `bootstrap.checkpoint`."""
    match = _METADATA_SNAPSHOT.fullmatch(path.name)
    return MetadataSnapshot(int(match[1]), int(match[2]), path) if match else MetadataSnapshot(0, 0, path)


@dataclass(slots=True)
class PartitionFiles:
    """A partition's directory. `segments` ascend; `aside` are files that a broker was writing or deleting."""

    path: Path
    topic: str
    index: int
    segments: list[Segment] = field(default_factory=list)
    producer_snapshots: list[tuple[int, Path]] = field(default_factory=list)
    metadata_snapshots: list[MetadataSnapshot] = field(default_factory=list)
    leader_epochs: Path | None = None
    metadata: Path | None = None
    quorum_state: Path | None = None
    mark: Path | None = None
    aside: list[tuple[str, Path]] = field(default_factory=list)
    unknown: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        """`topic-partition`, or the directory's name where that tells neither."""
        name = f"{self.topic}-{self.index}"
        return name if self.path.name.startswith(name) else self.path.name

    @property
    def is_metadata_log(self) -> bool:
        """Whether it is the cluster's metadata log."""
        return self.topic == METADATA_TOPIC

    @property
    def logs(self) -> list[tuple[int, Path]]:
        """(base offset, path) of the segments that have a log."""
        return [(segment.base_offset, segment.log) for segment in self.segments if segment.log is not None]

    @classmethod
    def of(cls, path: Path) -> PartitionFiles:
        """List `path`, whatever its name is."""
        aside = _ASIDE.fullmatch(path.name)
        match = _PARTITION.fullmatch(path.name.rpartition(".")[0] if aside else path.name)
        topic, index = (match["topic"], int(match["index"])) if match else (path.name, 0)
        files = cls(path, topic, index)
        segments: dict[int, Segment] = {}
        for entry in sorted(path.iterdir()):
            files._take(entry, segments)
        files.segments = [segments[base] for base in sorted(segments)]
        return files

    def _take(self, entry: Path, segments: dict[int, Segment]) -> None:
        if _would_wait(entry):
            self.unknown.append(entry)
        elif found := _segment_file(entry.name):
            base_offset, kind = found
            if kind is FileKind.PRODUCER_SNAPSHOT:
                self.producer_snapshots.append((base_offset, entry))
                return
            segment = segments.setdefault(base_offset, Segment(base_offset))
            setattr(segment, _SEGMENT_FIELDS[kind], entry)
        elif _METADATA_SNAPSHOT.fullmatch(entry.name):
            self.metadata_snapshots.append(metadata_snapshot(entry))
        elif match := _LEFTOVER.fullmatch(entry.name):
            self.aside.append((match["why"], entry))
        elif entry.name == epoch_checkpoint.FILE_NAME:
            self.leader_epochs = entry
        elif entry.name == partition_metadata.FILE_NAME:
            self.metadata = entry
        elif entry.name == QUORUM_STATE:
            self.quorum_state = entry
        elif entry.name == _MARK_NAME:
            self.mark = entry
        elif entry.name in (log_ends.CUT_NOTE, ring_notes.FILE_NAME):
            return
        else:
            self.unknown.append(entry)


_SEGMENT_FIELDS = {
    FileKind.LOG: "log",
    FileKind.OFFSET_INDEX: "index",
    FileKind.TIME_INDEX: "time_index",
    FileKind.TRANSACTION_INDEX: "transaction_index",
}


@dataclass(slots=True)
class LogDirFiles:
    """One of log.dirs. `aside` are directories that a broker is done with: why, and where."""

    path: Path
    partitions: list[PartitionFiles] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    aside: list[tuple[str, Path]] = field(default_factory=list)
    unknown: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path) -> LogDirFiles:
        """List `path`."""
        found = cls(path)
        for entry in sorted(path.iterdir()):
            if _would_wait(entry):
                found.unknown.append(entry)
            elif entry.is_dir():
                if match := _ASIDE.fullmatch(entry.name):
                    found.aside.append((match["why"], entry))
                elif _PARTITION.fullmatch(entry.name):
                    found.partitions.append(PartitionFiles.of(entry))
                elif entry.name != _REMOTE_CACHE and entry.name != "lost+found":
                    found.unknown.append(entry)
            elif entry.name in _NAMED:
                found.files[entry.name] = entry
            elif match := _LEFTOVER.fullmatch(entry.name):
                found.aside.append((match["why"], entry))
            elif entry.name not in _OTHERS:
                found.unknown.append(entry)
        return found


Target = LogDirFiles | PartitionFiles | Path


def open_target(path: Path) -> Target:
    """A path of the command line. StorageError when it is nothing that a broker keeps."""
    if path.is_file():
        if file_kind(path) is None:
            raise StorageError(
                f"{path}: no broker names a file so; give a log dir, a partition's directory or its files"
            )
        return path
    if not path.is_dir():
        raise StorageError(f"{path}: there is no such file or directory")
    if _ASIDE.fullmatch(path.name) or any(_segment_file(entry.name) for entry in path.iterdir()):
        return PartitionFiles.of(path)
    found = LogDirFiles.of(path)
    if found.files or any(partition.segments for partition in found.partitions):
        return found
    if _PARTITION.fullmatch(path.name):
        return PartitionFiles.of(path)
    raise StorageError(
        f"{path}: neither a log dir nor a partition's directory: no meta.properties, partitions or segments"
    )
