"""Checks one file by itself, or with the others of its segment. Reads only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pybroker.storage.offline import text_files
from pybroker.storage.offline.checks.check_metadata_snapshot import check_metadata_snapshot
from pybroker.storage.offline.checks.check_partition import check_partition
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.layout import FileKind, PartitionFiles, Segment, metadata_snapshot
from pybroker.storage.offline.partition_state import PartitionContext

_TEXT: dict[FileKind, Callable[[Path], object]] = {
    FileKind.LEADER_EPOCHS: text_files.leader_epochs,
    FileKind.OFFSETS: text_files.offsets,
    FileKind.PARTITION_METADATA: text_files.partition_metadata,
    FileKind.META_PROPERTIES: text_files.meta_properties,
    FileKind.QUORUM_STATE: text_files.quorum_state,
    FileKind.CLEAN_SHUTDOWN: text_files.clean_shutdown,
}


def check_one_file(path: Path, kind: FileKind, report: Report, deep: bool) -> None:
    """Text files for their format; those of a segment against its other files."""
    if kind in _TEXT:
        try:
            _TEXT[kind](path)
        except text_files.Damage as error:
            report.error("malformed", path, str(error), position=error.position)
        report.saw(path)
        return
    if kind is FileKind.METADATA_SNAPSHOT:
        check_metadata_snapshot(metadata_snapshot(path), report)
        return
    everything = PartitionFiles.of(path.resolve().parent)
    alone = PartitionFiles(everything.path, everything.topic, everything.index)
    if kind is FileKind.PRODUCER_SNAPSHOT:
        alone.producer_snapshots = [each for each in everything.producer_snapshots if each[1].name == path.name]
    elif kind is FileKind.MARK:
        alone.mark = path
    elif kind is FileKind.LOG and path.suffix != ".log":
        # One that a broker had put aside: nothing beside it belongs to it.
        alone.segments = [Segment(int(path.name[:20]), log=path)]
    else:
        alone.segments = [each for each in everything.segments if each.base_offset == int(path.name[:20])]
    check_partition(alone, PartitionContext(alone=True), report, deep=deep)
