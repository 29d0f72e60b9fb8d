"""`check`: finds damage and contradictions in a log dir, a partition's directory or a file. Reads only."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.files import clean_shutdown, gap_checkpoint, meta_properties, offset_checkpoint
from pybroker.storage.offline import text_files
from pybroker.storage.offline.checks.check_file import check_one_file
from pybroker.storage.offline.checks.check_metadata_snapshot import check_metadata_snapshot
from pybroker.storage.offline.checks.check_partition import check_partition
from pybroker.storage.offline.checks.findings import INFO, WARNING, Report, damage_told, unreadable_told
from pybroker.storage.offline.checks.left_rings import check_left_rings
from pybroker.storage.offline.checks.losses import check_losses
from pybroker.storage.offline.layout import (
    BOOTSTRAP_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    LogDirFiles,
    PartitionFiles,
    Target,
    file_kind,
    metadata_snapshot,
)
from pybroker.storage.offline.partition_state import PartitionContext, PartitionState
from pybroker.storage.offline.small_files import read_whole
from pybroker.storage.offline.text_files import OffsetEntry
from pybroker.storage.rings import tail_rings

_HEADER_BYTES = 61
_HEADER = struct.Struct(">qiibIhi")
_LENGTH_END = 12
_ASIDE_TEXT = {
    "delete": (INFO, "a deleted partition; the next start removes it"),
    "stray": (WARNING, "a partition that this broker did not have to have; no broker reads or removes it"),
    "future": (INFO, "a partition on its way from another log dir"),
}
Offsets = dict[tuple[str, int], OffsetEntry]


@dataclass(slots=True)
class LogDirState:
    """The knowledge of a check about a log dir. `broker_epoch` is None when the last stop was not clean."""

    files: LogDirFiles
    partitions: list[PartitionState] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    broker_epoch: int | None = None


class MetadataCheck(Protocol):
    """Replays the metadata log of a directory and compares the metadata with the log dir around it."""

    def __call__(self, partition: PartitionState, log_dir: LogDirState | None, report: Report) -> None:
        """Add the contradictions to `report`."""
        ...


def check(target: Target, report: Report, *, deep: bool, check_metadata: MetadataCheck) -> None:
    """Check `target`: a log dir, one partition's directory, or one file. Adds the findings to `report`. `deep` also
    decompresses and checks the records of each batch."""
    with unreadable_told(target if isinstance(target, Path) else target.path, report):
        if isinstance(target, LogDirFiles):
            _check_log_dir(target, report, deep, check_metadata)
        elif isinstance(target, PartitionFiles):
            _check_partition_alone(target, report, deep, check_metadata)
        else:
            kind = file_kind(target)
            assert kind is not None
            check_one_file(target, kind, report, deep)


def _check_log_dir(files: LogDirFiles, report: Report, deep: bool, check_metadata: MetadataCheck) -> None:
    for why, path in files.aside:
        severity, text = _ASIDE_TEXT.get(why, (INFO, "a file that was being written"))
        report.add(severity, f"left-over-{why}", path, text)
    for path in files.unknown:
        report.warning("unknown-file", path, "no broker names a file or directory so")
    checkpoints = {name: _read_offsets(files.files.get(name), report) for name in OFFSET_CHECKPOINTS}
    # The gap checkpoint is only read, to report damage: its offsets may lie above what a power cut has left.
    _read_offsets(files.files.get(gap_checkpoint.FILE_NAME), report)
    state = LogDirState(files)
    _read_identity(state, report)
    for partition in files.partitions:
        context = _context(partition, checkpoints, closed_cleanly=state.broker_epoch is not None)
        with unreadable_told(partition.path, report):
            state.partitions.append(check_partition(partition, context, report, deep=deep))
            for snapshot in partition.metadata_snapshots:
                check_metadata_snapshot(snapshot, report)
    if BOOTSTRAP_CHECKPOINT in files.files:
        check_metadata_snapshot(metadata_snapshot(files.files[BOOTSTRAP_CHECKPOINT]), report)
    for name, offsets in checkpoints.items():
        if offsets is not None:
            _check_offsets(files.path / name, name, offsets, state, report)
    _check_topic_ids(state, report)
    with unreadable_told(files.path, report):
        check_losses(files.path, state.partitions, state.broker_epoch, report)
    if state.properties:
        with unreadable_told(files.path, report):
            check_left_rings(files.path, report)
    for each in state.partitions:
        if each.files.is_metadata_log:
            check_metadata(each, state, report)


def _check_partition_alone(files: PartitionFiles, report: Report, deep: bool, check_metadata: MetadataCheck) -> None:
    """Check one partition's directory. The checkpoints of the log dir around it are used if they are there."""
    around = files.path.resolve().parent
    quiet = Report()
    checkpoints = {name: _read_offsets(path, quiet) for name in OFFSET_CHECKPOINTS if (path := around / name).is_file()}
    context = _context(files, checkpoints, closed_cleanly=(around / clean_shutdown.FILE_NAME).is_file())
    state = check_partition(files, context, report, deep=deep)
    if (around / tail_rings.FILE_NAME).is_file():
        check_left_rings(around, report, only=files.path.resolve())
    for snapshot in files.metadata_snapshots:
        check_metadata_snapshot(snapshot, report)
    if files.is_metadata_log:
        check_metadata(state, None, report)


def _context(files: PartitionFiles, checkpoints: dict[str, Offsets | None], closed_cleanly: bool) -> PartitionContext:
    key = files.topic, files.index
    start = (checkpoints.get(offset_checkpoint.LOG_START_OFFSET) or {}).get(key)
    if files.is_metadata_log:
        return PartitionContext(0, None, closed_cleanly)
    cleaner = checkpoints.get(offset_checkpoint.CLEANER_OFFSET)
    if cleaner is None:
        # Without a good cleaner checkpoint it is not known which logs were compacted.
        return PartitionContext(None, start.offset if start else None, closed_cleanly)
    cleaned = cleaner.get(key)
    return PartitionContext(cleaned.offset if cleaned else 0, start.offset if start else None, closed_cleanly)


def _read_offsets(path: Path | None, report: Report) -> Offsets | None:
    """The offsets of a checkpoint file; None when the file is absent or damaged."""
    if path is None:
        return None
    offsets = None
    with damage_told(path, report):
        offsets = text_files.offsets(path)
        report.saw(path)
    return offsets


def _read_identity(state: LogDirState, report: Report) -> None:
    files = state.files.files
    properties = files.get(meta_properties.FILE_NAME)
    if properties is None:
        report.error("file-missing", state.files.path, "there is no meta.properties: no broker opens this dir")
    else:
        with damage_told(properties, report):
            state.properties = text_files.meta_properties(properties)
            report.saw(properties)
    mark = files.get(clean_shutdown.FILE_NAME)
    if mark is None:
        report.info("unclean", state.files.path, "the broker was not stopped in order, or is running")
        return
    with damage_told(mark, report):
        state.broker_epoch = text_files.clean_shutdown(mark)
        report.saw(mark)


def _check_offsets(path: Path, name: str, offsets: Offsets, state: LogDirState, report: Report) -> None:
    """Compare a checkpoint file with the logs. Its partitions must exist. Each offset must be within its log, and must
    not lie inside of a batch."""
    by_key = {(each.files.topic, each.files.index): each for each in state.partitions}
    of_all = name in (offset_checkpoint.RECOVERY_POINT, offset_checkpoint.HIGH_WATERMARK)
    for (topic, index), entry in offsets.items():
        partition = by_key.get((topic, index))
        if partition is None:
            text = f"{topic}-{index} is not in this log dir"
            report.warning("checkpoint-partition", path, text, position=entry.position)
            continue
        if partition.is_damaged:
            continue
        text = _wrong_offset(name, entry.offset, partition, state.broker_epoch is not None)
        if text:
            report.error("checkpoint-offset", path, f"{topic}-{index}: {text}", entry.position, entry.offset)
    if of_all and state.broker_epoch is not None:
        for key in by_key.keys() - offsets.keys():
            if not by_key[key].files.is_metadata_log:
                report.warning("checkpoint-partition", path, f"{key[0]}-{key[1]} is missing")


def _wrong_offset(name: str, offset: int, partition: PartitionState, is_clean: bool) -> str:
    first, end = partition.first_offset, partition.end_offset
    if name == offset_checkpoint.RECOVERY_POINT and is_clean and offset != end:
        return f"the recovery point is {offset}, but the broker was stopped in order and the log ends at {end}"
    if offset > end:
        return f"offset {offset} is beyond the end of the log, {end}"
    if name == offset_checkpoint.LOG_START_OFFSET:
        return "" if offset >= first else f"the log start offset is {offset}, the first segment begins at {first}"
    if name != offset_checkpoint.RECOVERY_POINT and offset < first:
        # A recovery point may lie below what retention has deleted since it was taken.
        return f"offset {offset} is below the first segment, {first}"
    inside = batch_around(partition.files, offset)
    return f"offset {offset} is inside of the batch from {inside[0]} to {inside[1]}" if inside else ""


def batch_around(files: PartitionFiles, offset: int) -> tuple[int, int] | None:
    """The first and the last offset of the batch that `offset` lies inside of. None when there is no such batch, or
    `offset` is its first offset."""
    base_offset, log = 0, None
    for each_base, each_log in files.logs:
        if each_base < offset:
            base_offset, log = each_base, each_log
    if log is None:
        return None
    for first, last in _headers(log, base_offset, offset):
        if first < offset <= last:
            return first, last
    return None


def _headers(log: Path, base_offset: int, offset: int) -> Iterator[tuple[int, int]]:
    """(base offset, last offset) of the batches up to `offset`. Begins at the last index entry below `offset`."""
    position = 0
    index = log.with_suffix(".index")
    with suppress(OSError):  # without an index, read the segment from its beginning
        data = read_whole(index)
        for relative, at in struct.iter_unpack(">Ii", data[: len(data) // 8 * 8]):
            if base_offset + relative < offset and at > position:
                position = at
    with open(log, "rb") as file:
        while True:
            file.seek(position)
            head = file.read(_HEADER_BYTES)
            if len(head) < _HEADER_BYTES:
                return
            first, length, _, magic, _, _, delta = _HEADER.unpack_from(head)
            if magic != 2 or length < _HEADER_BYTES - _LENGTH_END or first > offset:
                return
            yield first, first + delta
            position += length + _LENGTH_END


def _check_topic_ids(state: LogDirState, report: Report) -> None:
    """Check that all partitions of a topic have the same topic id, and that no two topics have the same id."""
    by_topic: dict[str, tuple[bytes, Path]] = {}
    by_id: dict[bytes, str] = {}
    for each in state.partitions:
        path = each.files.metadata
        # A formatted dir in which nothing has run has a metadata log without segments.
        if path is None and (each.files.logs or not each.files.is_metadata_log):
            # Brokers with ZooKeeper wrote no partition.metadata. The next broker writes it with the controllers' id.
            severity = INFO if state.properties.get("version") == "0" else WARNING
            text = "there is no partition.metadata, which names the topic's id"
            report.add(severity, "file-missing", each.files.path, text)
        if path is None or each.topic_id is None:
            continue
        first_id, first_path = by_topic.setdefault(each.files.topic, (each.topic_id, path))
        if first_id != each.topic_id:
            text = f"the topic id is {uuid_to_text(each.topic_id)}, but {uuid_to_text(first_id)} in {first_path}"
            report.error("topic-id", path, text)
        other = by_id.setdefault(each.topic_id, each.files.topic)
        if other != each.files.topic:
            report.error("topic-id", path, f"topic {other} has the same topic id, {uuid_to_text(each.topic_id)}")
