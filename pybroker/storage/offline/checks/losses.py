"""Records that logs of a stopped broker had and have no more, as a start would find them; and accepting that.

`pybroker/storage/logs/log_loss.py` has the comparisons of a start. Blocks; `OSError`, and `StorageError` for what
cannot be done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pybroker.storage.dirs.interrupted_moves import deleted_partition
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown, gap_checkpoint, offset_checkpoint, partition_metadata
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.directory_lock import DirectoryLock
from pybroker.storage.files.log_ends import EndsFile, RecordedEnds, counting, why_not_ours
from pybroker.storage.files.modes import DIRECTORY_MODE, FILE_MODE, data_opener
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.log_loss import Loss, find_lost_ring, find_missing, find_short, without_deleted
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.partition_state import PartitionState
from pybroker.storage.rings import ring_notes
from pybroker.storage.rings.ring_salvage import end_of as end_of_segment
from pybroker.storage.rings.ring_salvage import newest_segment
from pybroker.values import Value

_SEGMENT = re.compile(r"(\d{20})\.log")
_INDEXES = (".index", ".timeindex", ".txnindex")
_COPY_BYTES = 1 << 20


def check_losses(log_dir: Path, partitions: Sequence[PartitionState], broker_epoch: int | None, report: Report) -> None:
    """Tell of every log of a dir that ends before its record, or lacks segments. `broker_epoch` is of the mark of a
    stop in order, None without one."""
    by_key = {(each.files.topic, each.files.index): each for each in partitions}
    for state in partitions:
        key = state.files.topic, state.files.index
        lost = find_lost_ring(key, state.files.path, None)
        if lost is not None:
            report.error("lost-records", lost.path, str(lost), offset=lost.first_offset)
    try:
        found = EndsFile.read(log_dir)
    except StorageError as error:
        report.error("malformed", log_dir / ".pybroker_log_ends", str(error))
        return
    if found is None:
        return
    why = why_not_ours(found, log_dir, broker_epoch)
    if why is not None:
        report.info("log-ends", log_dir, f"what the last pybroker recorded does not count: {why}")
        return
    for key, recorded in counting(found, log_dir).items():
        partition = by_key.get(key)
        if partition is not None and partition.topic_id not in (None, recorded.topic_id):
            continue
        if partition is None and _is_deleted(log_dir, key, recorded):
            continue
        log = log_dir / f"{key[0]}-{key[1]}"
        recorded = without_deleted(log, recorded)
        loss = find_missing(key, log, recorded)
        if loss is None and partition is not None:
            loss = find_short(key, partition.files.path, recorded, partition.first_offset, partition.end_offset)
        if loss is not None:
            report.error("lost-records", loss.path, str(loss), offset=loss.first_offset)


def quick_losses(log_dir: Path) -> list[Loss]:
    """The losses in a dir that no broker has open, as far as names and sizes tell. A damaged record tells of none."""
    try:
        found = EndsFile.read(log_dir)
    except StorageError:
        return []
    if found is None or why_not_ours(found, log_dir, clean_shutdown.read(log_dir)) is not None:
        return []
    losses = []
    for key, recorded in counting(found, log_dir).items():
        log = log_dir / f"{key[0]}-{key[1]}"
        if not log.is_dir() and _is_deleted(log_dir, key, recorded):
            continue
        if log.is_dir() and _topic_id(log) not in (None, recorded.topic_id):
            continue
        recorded = without_deleted(log, recorded)
        loss = find_missing(key, log, recorded) or find_lost_ring(key, log, recorded)
        losses += [] if loss is None else [loss]
    return losses


def _topic_id(log: Path) -> bytes | None:
    try:
        return partition_metadata.read(log)
    except StorageError:
        return None


def _is_deleted(log_dir: Path, key: TopicPartition, recorded: RecordedEnds) -> bool:
    """Whether the directory was renamed to be deleted."""
    for entry in log_dir.iterdir():
        if deleted_partition(entry.name) == key:
            try:
                return partition_metadata.read(entry) == recorded.topic_id
            except StorageError:
                return True
    return False


# ---- accepting a loss ------------------------------------------------------------------------------------------------


class AcceptedLoss(Value):
    """The accepted losses, and the offset where the log goes on. `notes` say what was changed."""

    losses: tuple[Loss, ...]
    next_offset: int
    notes: tuple[str, ...]


def accept_loss(log_dir: Path, key: TopicPartition, *, look: bool = False) -> AcceptedLoss:
    """Makes the rest of a partition's log its log, going on where it was known to end: no offset is given out twice.
    `look`: only say what would be accepted. StorageError when nothing is lost."""
    with DirectoryLock(log_dir):
        found = EndsFile.read(log_dir)
        why = None if found is None else why_not_ours(found, log_dir, clean_shutdown.read(log_dir))
        if found is not None and why is not None:
            raise StorageError(f"{log_dir}: what the last pybroker recorded does not count: {why}")
        recorded = None if found is None else counting(found, log_dir).get(key)
        log = log_dir / f"{key[0]}-{key[1]}"
        losses = _losses_of(key, log, recorded)
        if not losses:
            raise StorageError(f"{log} has lost nothing that was recorded")
        next_offset = max(each.next_offset for each in losses)
        notes: list[str] = []
        if not look:
            _go_on_at(log, recorded, next_offset, notes)
            _let_gaps_be(log_dir, key, next_offset)
            if found is not None and recorded is not None:
                ends = {**found.ends, key: _as_it_is(log, recorded, next_offset)}
                found.replace(ends=ends).write(log_dir)
            ring_notes.clear(log)
        return AcceptedLoss(tuple(losses), next_offset, tuple(notes))


def _losses_of(key: TopicPartition, log: Path, recorded: RecordedEnds | None) -> list[Loss]:
    recorded = None if recorded is None else without_deleted(log, recorded)
    missing = None if recorded is None else find_missing(key, log, recorded)
    ring = find_lost_ring(key, log, recorded) if log.is_dir() else None
    short = None
    newest = newest_segment(log) if log.is_dir() else None
    if recorded is not None and log.is_dir():
        first, end = (0, 0) if newest is None else (_bases(log)[0], end_of_segment(newest)[1])
        short = find_short(key, log, recorded, first, end)
    return [each for each in (missing, ring, short) if each is not None]


def _bases(log: Path) -> list[int]:
    return sorted(int(match[1]) for entry in log.iterdir() if (match := _SEGMENT.fullmatch(entry.name)))


def _go_on_at(log: Path, recorded: RecordedEnds | None, next_offset: int, notes: list[str]) -> None:
    """Cut what is no whole batch off every segment that lost some, and let a new segment begin at `next_offset`."""
    if not log.is_dir():
        assert recorded is not None
        log.mkdir(DIRECTORY_MODE)
        partition_metadata.write(log, recorded.topic_id)
        fsync_directory(log.parent)
        notes.append(f"made {log}")
    sizes = dict(() if recorded is None else recorded.segments)
    newest = newest_segment(log)
    for base in _bases(log):
        segment = log / f"{base:020}.log"
        if segment == newest or segment.stat().st_size < sizes.get(base, 0):
            _cut_torn(segment, notes)
    if newest is None or end_of_segment(newest)[1] < next_offset:
        path = log / f"{next_offset:020}.log"
        path.touch(FILE_MODE)
        notes.append(f"made {path}")
    fsync_directory(log)


def _cut_torn(segment: Path, notes: list[str]) -> None:
    """The bytes behind the whole batches of a segment are kept in a file beside it."""
    position, _ = end_of_segment(segment)
    size = segment.stat().st_size
    if position >= size:
        return
    kept = segment.with_name(f"{segment.name}.damaged-{position}")
    with open(segment, "r+b") as file, open(kept, "xb", opener=data_opener) as copy:
        file.seek(position)
        while chunk := file.read(_COPY_BYTES):
            copy.write(chunk)
        copy.flush()
        os.fsync(copy.fileno())
        file.truncate(position)
        os.fsync(file.fileno())
    for ending in _INDEXES:
        segment.with_suffix(ending).unlink(missing_ok=True)  # they are built again
    notes.append(f"cut {segment} at position {position}; what followed is in {kept.name}")


def _let_gaps_be(log_dir: Path, key: TopicPartition, next_offset: int) -> None:
    """A start after a stop that was not in order takes the gap for one of the log's own."""
    path = log_dir / gap_checkpoint.FILE_NAME
    offsets = offset_checkpoint.read(path)
    if offsets.get(key, gap_checkpoint.UNKNOWN) < next_offset:
        offset_checkpoint.write(path, {**offsets, key: next_offset})


def _as_it_is(log: Path, recorded: RecordedEnds, next_offset: int) -> RecordedEnds:
    bases = _bases(log)
    sizes: Iterable[tuple[int, int]] = ((base, (log / f"{base:020}.log").stat().st_size) for base in bases)
    segments = tuple((base, size) for base, size in sizes if size > 0)
    return recorded._replace(start=bases[0], durable=next_offset, written=next_offset, segments=segments)
