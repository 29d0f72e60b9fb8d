"""Which batches of a damaged log are worth keeping, and what of them can be set right. Pure, one batch of look-ahead.

A batch whose CRC is right is intact but for what the CRC does not cover: base offset and leader epoch. Where these
contradict both neighbours they are wrong and the neighbours are right. The base offset is corrected where the
neighbours leave no choice, and otherwise the batch is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pybroker.native import walk
from pybroker.native.walk import WalkRow
from pybroker.storage.offline.layout import Segment

_MAX_RELATIVE_OFFSET = (1 << 31) - 1
WANTED = walk.EVERY


@dataclass(frozen=True, slots=True)
class Dropped:
    """Bytes that are not kept. Offsets are those that may be lost with them; -1: not known."""

    path: Path
    position: int
    size_bytes: int
    first_offset: int
    last_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A field of a batch that is set right."""

    path: Path
    position: int
    field: str
    was: int
    now: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A batch to keep. `row` has base offset and leader epoch as they shall be; its position is in the source."""

    segment: Segment
    row: WalkRow


Step = Dropped | Restored | Kept
Found = tuple[Segment, WalkRow]


class Planner:
    """Goes over the batches of a partition in order."""

    def __init__(self, last_known_epoch: int | None) -> None:
        """`last_known_epoch`: the largest of leader-epoch-checkpoint. A single batch has no larger one; several do when
        the file is behind, as after a crash, or damaged."""
        self._last_known_epoch = last_known_epoch
        self._due = -1
        self._due_is_exact = False
        self._epoch = -1

    def steps(self, found: Iterable[Found]) -> Iterator[Step]:
        """The steps of the repair, in the order of the log."""
        waiting: Found | None = None
        for following in found:
            if waiting is not None:
                yield from self._judge(waiting, following)
            waiting = following
        if waiting is not None:
            yield from self._judge(waiting, None)

    def _judge(self, each: Found, following: Found | None) -> Iterator[Step]:
        segment, row = each
        assert segment.log is not None
        if self._due < segment.base_offset:
            self._due, self._due_is_exact = segment.base_offset, False
        after = following[1] if following is not None and following[1].is_intact else None
        if not row.is_intact:
            yield self._drop(segment, row, after, _damage(row.flags))
            return
        if row.flags & walk.HEADER:
            yield self._drop(segment, row, after, "its header makes no sense under a right CRC")
            return
        base_offset = self._base_offset(segment, row, after)
        if base_offset is None:
            yield self._drop(segment, row, after, f"its base offset {row.base_offset} contradicts its neighbours")
            return
        epoch = self._leader_epoch(row, after)
        if base_offset != row.base_offset:
            yield Restored(segment.log, row.position, "base offset", row.base_offset, base_offset)
        if epoch != row.leader_epoch:
            yield Restored(segment.log, row.position, "leader epoch", row.leader_epoch, epoch)
        kept = row._replace(base_offset=base_offset, leader_epoch=epoch)
        self._due, self._due_is_exact, self._epoch = kept.last_offset + 1, True, epoch
        yield Kept(segment, kept)

    def _drop(self, segment: Segment, row: WalkRow, after: WalkRow | None, reason: str) -> Dropped:
        assert segment.log is not None
        self._due_is_exact = False
        last = after.base_offset - 1 if after is not None and after.base_offset >= self._due else -1
        return Dropped(segment.log, row.position, row.size_bytes, self._due, last, reason)

    def _base_offset(self, segment: Segment, row: WalkRow, after: WalkRow | None) -> int | None:
        """The base offset that the batch has or must have had; None when nobody can tell."""
        base_offset = row.base_offset
        fits = self._due <= base_offset and row.last_offset - segment.base_offset <= _MAX_RELATIVE_OFFSET
        leaps = after is not None and self._due <= after.base_offset <= row.last_offset
        if fits and (base_offset == self._due or not leaps):
            return base_offset
        # A flipped bit: the batches before and after leave exactly one place for it.
        there = self._due + row.last_offset_delta + 1
        if self._due_is_exact and row.magic == 2 and (after is None or after.base_offset == there):
            return self._due
        return None

    def _leader_epoch(self, row: WalkRow, after: WalkRow | None) -> int:
        epoch = row.leader_epoch
        is_alone = after is None or epoch != after.leader_epoch
        too_new = is_alone and self._last_known_epoch is not None and epoch > self._last_known_epoch
        leaps = after is not None and epoch > after.leader_epoch >= self._epoch
        if row.magic != 2 or (epoch >= self._epoch and not too_new and not leaps):
            return epoch
        if self._epoch >= 0:
            return self._epoch
        return after.leader_epoch if after is not None and leaps else max(epoch, 0)


def _damage(flags: int) -> str:
    if flags & walk.UNREADABLE:
        return "the disk does not give it out"
    return "no batch" if flags & walk.GARBAGE else "wrong CRC"
