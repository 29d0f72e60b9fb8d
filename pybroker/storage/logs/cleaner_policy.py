"""Which part of which log is worth cleaning: by dirty ratio, by compaction lag. Pure, by Kafka's rules.

A log is clean below its first dirty offset, which is where the last clean ended, or where the log was cut since.
Records above came later, and have not been compared with those below. The cleanable part ends where one of three
segments begins: the one that holds the last stable offset, the first one too young for min.compaction.lag.ms, or the
active one. A log in which max.compaction.lag.ms has run out is cleaned whatever its ratio, and before others (KIP-354).
"""

from __future__ import annotations

from collections.abc import Sequence

from pybroker.native.partition import PartitionState, Segment
from pybroker.values import Value


class CompactionPolicy(Value):
    """min.cleanable.dirty.ratio, min.compaction.lag.ms, max.compaction.lag.ms."""

    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int


class FirstDirty(Value):
    """Where the dirty part of a log begins. `reset`: not where the checkpoint says, which lies outside the log;
    `reset_reason` tells people, where it is worth telling."""

    offset: int
    reset: bool = False
    reset_reason: str = ""


class LogToClean(Value):
    """A log that is due to be cleaned: the records of [first_dirty_offset, upper_offset) decide, and all segments below
    are rewritten. `overdue_ms` is how long ago max.compaction.lag.ms ran out."""

    first_dirty_offset: int
    upper_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int

    @property
    def dirty_ratio(self) -> float:
        """Share of the bytes below `upper_offset` that are dirty; 0 for a log without any."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes > 0 else 0.0

    def is_due(self, policy: CompactionPolicy) -> bool:
        """Whether it is worth cleaning now."""
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > policy.min_dirty_ratio)

    @property
    def rank(self) -> tuple[bool, float]:
        """Sorts the most urgent log last: overdue ones after all others, then by dirty ratio."""
        return self.overdue_ms > 0, self.dirty_ratio


def first_dirty(state: PartitionState, checkpoint_offset: int | None, deletes: bool) -> FirstDirty:
    """Where to begin. `checkpoint_offset` is None when the log was never cleaned."""
    start_offset = state.log_start_offset
    if checkpoint_offset is None:
        return FirstDirty(start_offset)
    checkpoint_offset = min(checkpoint_offset, max(state.cut_offset, start_offset))
    if checkpoint_offset < start_offset:
        # Retention moves the start of a log that is deleted from as well, so there it is no news.
        reason = "" if deletes else f"it was cleaned up to {checkpoint_offset}, but begins at {start_offset} now"
        return FirstDirty(start_offset, True, reason)
    if checkpoint_offset > state.log_end_offset:
        reason = f"it was cleaned up to {checkpoint_offset}, but ends at {state.log_end_offset} now"
        return FirstDirty(start_offset, True, reason)
    return FirstDirty(checkpoint_offset)


def examine(
    segments: Sequence[Segment],
    state: PartitionState,
    first_dirty_offset: int,
    policy: CompactionPolicy,
    now_ms: int,
    first_timestamp_ms: int = -1,
) -> LogToClean:
    """The clean part and the cleanable part. `segments` are oldest first, the last one active; `first_timestamp_ms` is
    the smallest timestamp that a dirty segment begins with, from which max.compaction.lag.ms counts (-1: none)."""
    dirty = dirty_segments(segments, first_dirty_offset)
    uncleanable_offset = min(state.last_stable_offset, segments[-1].base_offset)
    if policy.min_lag_ms > 0:
        young = (each.base_offset for each in dirty if _newest_ms(each) > now_ms - policy.min_lag_ms)
        uncleanable_offset = min(uncleanable_offset, next(young, uncleanable_offset))
    upper_offset = max(first_dirty_offset, _segment_base(segments, max(uncleanable_offset, first_dirty_offset)))
    return LogToClean(
        first_dirty_offset,
        upper_offset,
        sum(each.size_bytes for each in segments if each.base_offset < first_dirty_offset),
        sum(each.size_bytes for each in dirty if each.end_offset <= upper_offset),
        max(0, now_ms - policy.max_lag_ms - first_timestamp_ms) if dirty and first_timestamp_ms > 0 else 0,
    )


def dirty_segments(segments: Sequence[Segment], first_dirty_offset: int) -> list[Segment]:
    """The sealed segments from the one that has the first dirty offset in it."""
    if first_dirty_offset >= segments[-1].base_offset:
        return []
    return [each for each in segments[:-1] if each.end_offset > first_dirty_offset]


def _segment_base(segments: Sequence[Segment], offset: int) -> int:
    """Where the segment begins that holds `offset`."""
    return max((each.base_offset for each in segments if each.base_offset <= offset), default=segments[0].base_offset)


def _newest_ms(segment: Segment) -> int:
    return segment.largest_timestamp_ms if segment.largest_timestamp_ms >= 0 else segment.modified_ms
