"""`repair` of whatever a path is: a log dir with its identity and checkpoints, one partition, or one segment.

Nothing of the source is written, unless `replace` is asked to put the result in its place. Fails with `OSError` for the
disk and `StorageError` where nothing can be repaired.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pybroker.storage.errors import StorageError
from pybroker.storage.files import applied_metadata, gap_checkpoint, meta_properties, offset_checkpoint
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.atomic import fsync_directory, write_durably
from pybroker.storage.files.modes import make_directory
from pybroker.storage.offline import text_files
from pybroker.storage.offline.checks.check import batch_around
from pybroker.storage.offline.checks.check_metadata_snapshot import check_metadata_snapshot
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.checks.left_rings import rings_brought_in, that_can_be_brought_in
from pybroker.storage.offline.layout import (
    BOOTSTRAP_CHECKPOINT,
    METADATA_TOPIC,
    FileKind,
    LogDirFiles,
    PartitionFiles,
    Target,
    file_kind,
    metadata_snapshot,
)
from pybroker.storage.offline.repairs.exchange import exchange
from pybroker.storage.offline.repairs.repair import MetadataKeeper, copy_checked, copy_durably, repair_partition
from pybroker.storage.offline.repairs.repair_report import PartitionResult, RepairResult

TopicIds = Callable[[PartitionFiles], Mapping[str, bytes]]
"""Topic ids by name, as a metadata log says; empty when it cannot be read."""


Keepers = Callable[[PartitionFiles], MetadataKeeper]
"""What goes on behind damage in the metadata log; see `MetadataKeeper`."""


def repair(target: Target, output: Path, topic_ids: TopicIds, keepers: Keepers | None = None) -> RepairResult:
    """Repair `target` into the directory `output`, which must be absent or empty, and write the reports beside it. With
    `keepers` a metadata log goes on behind damage, else it ends there."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise StorageError(f"{output} is not empty: name a directory that is not there yet")
    source = target if isinstance(target, Path) else target.path
    if source.resolve() in (output.resolve(), *output.resolve().parents):
        raise StorageError(f"{output} lies in {source}, which is only read")
    make_directory(output, exist_ok=True)
    result = RepairResult(source, output)
    files = _partition_of(target) if isinstance(target, Path) else target
    with rings_brought_in(files, output, result.notes):
        if isinstance(files, LogDirFiles):
            _repair_log_dir(files, output, topic_ids, keepers, result)
        else:
            known_end = _known_end(files.path.resolve().parent, files)
            keeper = keepers(files) if keepers is not None and files.is_metadata_log else None
            result.partitions.append(repair_partition(files, output / files.name, None, known_end, keeper))
    fsync_directory(output)
    for suffix, text in (("json", result.as_json()), ("txt", result.as_text())):
        write_durably(report_path(output, suffix), text.encode())
    return result


def report_path(output: Path, suffix: str) -> Path:
    """Where the report goes: beside the output, because a log dir has no place for it."""
    return output.resolve().with_name(f"{output.resolve().name}.repair-report.{suffix}")


def replace(target: Target, output: Path, result: RepairResult) -> Path:
    """Put `output` where the source was, and the source aside; where it is now. At each moment one of them is where a
    broker looks for it: an empty log would be made in its place. StorageError where that cannot be done."""
    if isinstance(target, Path):
        raise StorageError(f"{target}: only a directory can be replaced")
    source = target.path.resolve()
    repaired = output / target.name if isinstance(target, PartitionFiles) else output
    # Not inside of a log dir: Apache Kafka does not start when it finds a directory there that it does not know.
    around = source.parent if isinstance(target, LogDirFiles) else source.parent.parent
    aside = around / f"{source.name}.before-repair-{time.strftime('%Y%m%dT%H%M%S')}"
    rings = that_can_be_brought_in(target)
    if isinstance(target, PartitionFiles):
        _note_gap(source.parent, (target.topic, target.index), result.partitions[0].gap_offset)
    fsync_directory(repaired.parent)
    os.rename(repaired, aside)
    try:
        exchange(source, aside)
    except OSError as error:
        os.rename(aside, repaired)
        text = f"it cannot be put in the place of {source}, which is as it was: {error.strerror}"
        raise StorageError(f"the result is {repaired}: {text}") from error
    fsync_directory(source.parent)
    fsync_directory(around)
    for ring in rings:
        ring.unlink(missing_ok=True)
    if repaired != output:
        output.rmdir()
    return aside


def _note_gap(log_dir: Path, key: tuple[str, int], gap_offset: int) -> None:
    """Let the next start know that offsets may be missing below `gap_offset`."""
    path = log_dir / gap_checkpoint.FILE_NAME
    if gap_offset < 0:
        return
    try:
        known = offset_checkpoint.read(path)
    except StorageError:
        known = {}  # for a broker as well
    offset_checkpoint.write(path, {**known, key: max(gap_offset, known.get(key, -1))})


def _partition_of(path: Path) -> PartitionFiles:
    """One segment as a partition by itself."""
    if file_kind(path) is not FileKind.LOG:
        raise StorageError(f"{path}: give a log dir, a partition's directory or a .log file")
    everything = PartitionFiles.of(path.resolve().parent)
    everything.segments = [each for each in everything.segments if each.base_offset == int(path.name[:20])]
    everything.metadata_snapshots = []
    return everything


def _repair_log_dir(
    files: LogDirFiles, output: Path, topic_ids: TopicIds, keepers: Keepers | None, result: RepairResult
) -> None:
    result.notes += [f"left out {path}" for _, path in files.aside]
    result.notes += [f"left out {path}: no broker names it so" for path in files.unknown]
    ids: Mapping[str, bytes] = {}
    for partition in files.partitions:
        if partition.is_metadata_log:
            ids = topic_ids(partition)
    for partition in files.partitions:
        known_end = _known_end(files.path, partition)
        keeper = keepers(partition) if keepers is not None and partition.is_metadata_log else None
        repaired = repair_partition(
            partition, output / partition.path.name, ids.get(partition.topic), known_end, keeper
        )
        result.partitions.append(repaired)
    _copy_applied(files, output, result)
    properties = files.files.get(meta_properties.FILE_NAME)
    if properties is not None:
        # The identity of a log dir can only be set right by its owner, who finds here what there was.
        try:
            text_files.meta_properties(properties)
        except text_files.Damage as error:
            result.notes.append(f"{output / properties.name} has to be set right by hand: {error}")
        except OSError as error:
            result.notes.append(f"{output / properties.name} has to be made by hand: {error}")
            properties = None
    if properties is not None:
        copy_durably(properties, output)
    bootstrap = files.files.get(BOOTSTRAP_CHECKPOINT)
    if bootstrap is not None:
        copy_checked(bootstrap, output, _whole_snapshot, result.notes)
    ends = {(each.topic, each.index): done for each, done in zip(files.partitions, result.partitions, strict=True)}
    for name in (
        offset_checkpoint.HIGH_WATERMARK,
        offset_checkpoint.LOG_START_OFFSET,
        offset_checkpoint.CLEANER_OFFSET,
    ):
        _write_offsets(files, name, output, ends, result)
    gap_offsets = {key: done.gap_offset for key, done in ends.items() if done.gap_offset >= 0}
    if gap_offsets:
        # Without it a start takes what lies behind such a gap for the remains of a power cut.
        offset_checkpoint.write(output / gap_checkpoint.FILE_NAME, gap_offsets)


def _copy_applied(files: LogDirFiles, output: Path, result: RepairResult) -> None:
    """How far metadata were applied stays true: a log that ends before that is refused until an operator accepts it."""
    path = files.path / applied_metadata.FILE_NAME
    try:
        applied = AppliedMetadata.read(files.path)
    except (StorageError, OSError) as error:
        result.notes.append(f"left out {path}: {error}")
        return
    if applied is None:
        return
    copy_durably(path, output)
    log = next((each for each in result.partitions if each.name.startswith(METADATA_TOPIC)), None)
    if log is not None and log.end_offset < applied.end_offset:
        result.notes.append(
            f"the metadata log ends at offset {log.end_offset}, but it was applied up to {applied.end_offset}: no "
            "broker starts before `pybroker metadata accept`, which says what is missing"
        )


def _known_end(log_dir: Path, files: PartitionFiles) -> int:
    """The end that a log had reached when its checkpoints were written, if both agree: neither has a checksum. -1:
    unknown."""
    ends = []
    for name in (offset_checkpoint.RECOVERY_POINT, offset_checkpoint.HIGH_WATERMARK):
        try:
            entry = text_files.offsets(log_dir / name).get((files.topic, files.index))
        except (text_files.Damage, OSError):
            entry = None
        ends.append(-1 if entry is None else entry.offset)
    return min(ends)


def _whole_snapshot(path: Path) -> None:
    report = Report()
    check_metadata_snapshot(metadata_snapshot(path), report)
    if report.faults:
        raise text_files.Damage(report.faults[0].text)


def _write_offsets(
    files: LogDirFiles,
    name: str,
    output: Path,
    partitions: Mapping[tuple[str, int], PartitionResult],
    result: RepairResult,
) -> None:
    """A checkpoint with what still makes sense of the old one. Recovery points are not among them: without one the
    broker looks at a log from its beginning."""
    path = files.files.get(name)
    if path is None:
        return
    try:
        old = text_files.offsets(path)
    except (text_files.Damage, OSError) as error:
        result.notes.append(f"left out {path}: {error}")
        return
    kept = {}
    for key, entry in old.items():
        partition = partitions.get(key)
        if partition is None:
            continue
        offset = max(min(entry.offset, partition.end_offset), partition.first_offset)
        # Records may be deleted up to any offset; everything else moves from batch to batch.
        is_start = name == offset_checkpoint.LOG_START_OFFSET
        if is_start or batch_around(PartitionFiles.of(output / partition.name), offset) is None:
            kept[key] = offset
    offset_checkpoint.write(output / name, kept)
