"""Whether a log has lost records since it was recorded (`log_ends`): what is missing, where, and what follows from it.

`find_missing` compares files before a log is opened and changes nothing; `find_short` compares the ends of an open log.
Both are pure but for the disk, and block. `LogLosses` remembers what a start has found.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

from pybroker.observability.event_log import event
from pybroker.storage.errors import StorageError
from pybroker.storage.files.log_ends import CUT_NOTE, NO_START, RecordedEnds
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.files.regular_file import read_bytes
from pybroker.storage.rings.ring_notes import RingNote
from pybroker.storage.rings.ring_salvage import end_of as end_of_segment
from pybroker.storage.rings.ring_salvage import newest_segment
from pybroker.storage.rings.tail_rings import RING_BYTES
from pybroker.values import Value

logger = logging.getLogger(__name__)

_NOTE_BYTES = 64
_LOG_NAME = re.compile(r"(\d{20})\.log(\.deleted)?")


class Loss(Value):
    """Records that a log had and has no more: offsets from `first_offset` to below `end_offset`, or some of them.
    `path` is the file or directory that is wrong, and `what` says how. `next_offset` is where the log goes on once the
    loss is accepted. `is_inside`: records on both sides of them are still there."""

    key: TopicPartition
    path: Path
    what: str
    first_offset: int
    end_offset: int
    next_offset: int
    is_inside: bool = False

    def __str__(self) -> str:
        """For people."""
        name, where = f"{self.key[0]}-{self.key[1]}", f"{self.path} {self.what}"
        if self.first_offset == self.end_offset:
            return f"the log of {name}, which ended at offset {self.end_offset}, is lost: {where}"
        return f"records of {name} are lost, up to offsets {self.first_offset} to {self.end_offset - 1}: {where}"


class LostRecords(StorageError):
    """A log was not opened, because records are lost that nobody else has."""

    def __init__(self, loss: Loss) -> None:
        name = f"{loss.key[0]}-{loss.key[1]}"
        log = loss.path if loss.path.name == name else loss.path.parent
        super().__init__(
            f"{loss}. Bring it back from a backup, or, with the broker stopped, accept the loss with `pybroker log "
            f"accept-loss {log.parent} --partition {name}`: the log then goes on at offset {loss.next_offset}, and no "
            "offset is given out twice"
        )
        self.loss = loss


def end_of(recorded: RecordedEnds) -> int:
    """Where the log ended at least."""
    return max(recorded.durable, recorded.written)


def was_cut_below(log: Path, recorded: RecordedEnds) -> bool:
    """Whether the log was cut on purpose since, below what is recorded. A damaged note says that it was."""
    try:
        text = read_bytes(log / CUT_NOTE)[:_NOTE_BYTES]
    except FileNotFoundError:
        return False
    try:
        _, generation, offset = map(int, text.split())
    except ValueError:
        logger.warning("%s is damaged: ends recorded before it was written are not compared", log / CUT_NOTE)
        return True
    return generation != recorded.generation and offset < end_of(recorded)


def without_deleted(log: Path, recorded: RecordedEnds) -> RecordedEnds:
    """The record without the segments that retention or compaction has renamed to `.deleted`. Blocks.

    Apache Kafka does not know the record and does not lower it before it deletes segments. But it writes its
    checkpoints, which invalidates the record, before `file.delete.delay.ms` is over and the `.deleted` files go.
    """
    try:
        names = [found for found in map(_LOG_NAME.fullmatch, os.listdir(log)) if found is not None]
    except (FileNotFoundError, NotADirectoryError):
        return recorded
    deleted = {int(found[1]) for found in names if found[2]}
    if not deleted:
        return recorded
    first = min((int(found[1]) for found in names if not found[2]), default=0)
    start = NO_START if recorded.start < first and min(deleted) < first else recorded.start
    segments = tuple([each for each in recorded.segments if each[0] not in deleted])
    return recorded._replace(start=start, segments=segments)


def find_missing(key: TopicPartition, log: Path, recorded: RecordedEnds) -> Loss | None:
    """The recorded segments that are missing, or shorter than they were."""
    end = end_of(recorded)
    place = str(log)
    bad = [(base, size) for base, size in recorded.segments if _is_short(f"{place}/{base:020}.log", size)]
    if len(bad) == len(recorded.segments) and not log.is_dir():
        # Even if all records had been deleted: their offsets would be given out again.
        return Loss(key, log, "is gone", max(0, recorded.start), end, end) if end > 0 else None
    if not bad or was_cut_below(log, recorded):
        return None
    bases = [base for base, _ in recorded.segments]
    last = bases.index(bad[-1][0])
    behind = bases[last + 1] if last + 1 < len(bases) else end
    if behind <= recorded.start:
        return None  # records that were deleted
    first = max(bad[0][0], recorded.start)
    path = _segment(log, bad[0][0])
    is_inside = last + 1 < len(bases) and bad[0][0] != bases[0]
    more = f" (and {len(bad) - 1} more segments)" if len(bad) > 1 else ""
    what = _how_short(path, bad[0][1]) + more
    return Loss(key, path, what, first, behind, end, is_inside)


def find_lost_ring(key: TopicPartition, log: Path, recorded: RecordedEnds | None) -> Loss | None:
    """Whether the log's tail ring was missed: nobody knows how many records were in it. `next_offset` is above them all
    unless a byte of the ring held more than one record."""
    note = RingNote.read(log)
    if note is None or not note.is_lost:
        return None
    newest = newest_segment(log)
    found = 0 if newest is None else end_of_segment(newest)[1]
    end = max(found + 1, end_of(recorded) if recorded is not None else 0)
    what = f"had its newest records in the tail ring {note.ring_name}, which is gone or does not fit"
    return Loss(key, log, what, found, end, max(end, found + RING_BYTES))


def find_short(key: TopicPartition, log: Path, recorded: RecordedEnds, begins: int, found: int) -> Loss | None:
    """Whether a log that reaches from `begins` to `found` begins or ends elsewhere than it may."""
    end = end_of(recorded)
    begins_well = begins <= recorded.start or recorded.start == NO_START
    if found >= end and begins_well:
        return None
    if was_cut_below(log, recorded):
        return None
    if found < end:
        return Loss(key, log, f"ends at offset {found}, and reached {end}", found, end, end)
    return Loss(key, log, f"begins at offset {begins}, and began at {recorded.start}", recorded.start, begins, found)


def _segment(log: Path, base_offset: int) -> Path:
    return log / f"{base_offset:020}.log"


def _is_short(path: str, size_bytes: int) -> bool:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    # A name that is no regular file cannot be opened, and its opener says so.
    return stat.S_ISREG(found.st_mode) and found.st_size < size_bytes


def _how_short(path: Path, size_bytes: int) -> str:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "is gone"
    return f"has {found.st_size} bytes of {size_bytes}"


class LogLosses:
    """The losses that this start has found, by partition. `count` never falls, so that nobody misses one that was
    mended."""

    def __init__(self) -> None:
        self.found: dict[TopicPartition, Loss] = {}
        self.count = 0

    def report(self, loss: Loss, *, is_replicated: bool) -> None:
        """Tell of a loss, once."""
        if loss.key in self.found:
            return
        self.found[loss.key] = loss
        self.count += 1
        if is_replicated:  # else whoever cannot open the log tells of it
            logger.error(
                "%s. This replica is fetched again from the others, and does not lead before it has all of it",
                loss,
                extra=event("loss", partition=f"{loss.key[0]}-{loss.key[1]}"),
            )

    def forget(self, key: TopicPartition) -> None:
        """Another replica has brought everything back, or the partition is this broker's no more."""
        self.found.pop(key, None)
