"""Damage to a metadata log that does not end where it should, and the ways out of it.

A crash leaves the last write unfinished: bytes behind the last whole batch, with no batch behind them. All else is
damage, and nobody may go on from it in silence. The batches behind would be cut off with it, and the partitions of the
topics in there would be taken for those of deleted ones. Blocks on file reads. Raises `MetadataError`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pybroker.metadata.errors import DamagedBatch, MetadataError
from pybroker.metadata.log_files import SegmentFile, SegmentReader, SnapshotId, read_snapshot_batches
from pybroker.native.walk import EVERY, SegmentWalk
from pybroker.storage.files import epoch_checkpoint
from pybroker.storage.files.applied_metadata import AppliedMetadata

logger = logging.getLogger(__name__)

_WAYS_OUT = (
    "Nothing was changed. Restore __cluster_metadata-0 from a backup, or save what there is with `pybroker log repair`:"
    " `--metadata cut` keeps what lies before the damage, `--metadata skip` what follows it as well"
)


class Follower(NamedTuple):
    """A whole batch behind damage."""

    path: Path
    position: int
    base_offset: int


def follower(
    segment: SegmentFile, later: Sequence[SegmentFile], damaged_position: int, due_offset: int
) -> Follower | None:
    """The first whole batch behind `damaged_position` whose offset is above `due_offset`; without any, what lies there,
    if that is one. None: there is none."""
    walk = SegmentWalk()
    there: Follower | None = None
    for each in (segment, *later):
        for row in walk.rows(each.path, each.base_offset, wanted=EVERY):
            if not (row.is_batch and row.is_intact and row.base_offset > due_offset):
                continue
            found = Follower(each.path, row.position, row.base_offset)
            if each is not segment or row.position > damaged_position:
                return found
            # No CRC covers its offset.
            there = found if row.position == damaged_position else there
    return there


def check_torn(reader: SegmentReader, segment: SegmentFile, later: Sequence[SegmentFile], known_end: int) -> None:
    """`reader` has met something at the end of what is whole in `segment`; `later` are the segments behind it.
    MetadataError unless that is a write that was cut short. All below `known_end` was durable."""
    place = (
        f"{segment.path}: {reader.problem} at position {reader.valid_bytes}, where offset {reader.next_offset} is due"
    )
    found = follower(segment, later, reader.valid_bytes, reader.next_offset)
    if found is not None:
        where = "" if found.path == segment.path else f" of {found.path}"
        raise MetadataError(
            f"{place}, and it is in the middle of the log: the batch at offset {found.base_offset} follows whole at "
            f"position {found.position}{where}. {_WAYS_OUT}"
        )
    if later:
        raise MetadataError(
            f"{place}, and it is in the middle of the log: {later[0].path.name} was begun behind it. {_WAYS_OUT}"
        )
    if known_end > reader.next_offset:
        raise MetadataError(
            f"{place}, and it is no unfinished write: all below offset {known_end} was once durable. {_WAYS_OUT}"
        )


def check_reaches_snapshot(
    directory: Path, segments: Sequence[SegmentFile], next_offset: int, latest: SnapshotId
) -> None:
    """A snapshot is made of what the log has, so a log that ends before it was emptied or cut. A snapshot from
    elsewhere comes without a log. MetadataError."""
    is_missing = not segments and (directory / epoch_checkpoint.FILE_NAME).exists()
    if latest.end_offset == 0 or not (is_missing or (segments and next_offset < latest.end_offset)):
        return
    what = "there is no log" if is_missing else f"the log ends at offset {next_offset}"
    raise MetadataError(
        f"{directory}: {what}, but the snapshot {latest.file_name} was made of one that went further: it was emptied, "
        f"cut or deleted, and what it had after offset {latest.end_offset} is lost. Nothing was changed. Restore "
        "__cluster_metadata-0 from a backup, or go on from the snapshot by `pybroker metadata accept`"
    )


def check_end(directory: Path, end_offset: int, epoch: int, applied: AppliedMetadata | None) -> None:
    """MetadataError when a log that ends there has lost what this broker had `applied`."""
    if applied is None or (end_offset >= applied.end_offset and epoch >= applied.epoch):
        return
    raise MetadataError(
        f"{directory}: the metadata log ends at offset {end_offset} in epoch {epoch}, but this broker had applied it up"
        f" to offset {applied.end_offset} in epoch {applied.epoch}: it was emptied, cut, or replaced by an older one. "
        "Topics that were made since would be missing, and their partitions set aside. Nothing was changed. Restore "
        "__cluster_metadata-0 from a backup, or go on with what is left by `pybroker metadata accept`, which first "
        "says what that is"
    )


def whole_snapshot(directory: Path, newest_first: Sequence[SnapshotId]) -> tuple[SnapshotId, list[bytes], list[str]]:
    """The newest snapshot that is whole, with its batches, and what is wrong with those that are newer. Without any:
    one of offset 0 and epoch 0, without batches."""
    problems: list[str] = []
    for each in newest_first:
        try:
            return each, list(read_snapshot_batches(directory / each.file_name)), problems
        except DamagedBatch as error:
            problems.append(str(error))
    return SnapshotId(0, 0), [], problems
