"""Which segments of a log may be deleted: by the log start offset, by size, by age. Pure, by Kafka's rules.

Segments go from the oldest on, never beyond the high watermark, and an empty active segment stays. When even the active
segment goes, the log is rolled first, so that it always has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pybroker.native.partition import Segment
from pybroker.values import Value

#: Timestamps that message.timestamp.after.max.ms allows by default are no news.
_FAR_FUTURE_MS = 3_600_000


class RetentionPolicy(Value):
    """`retention.bytes` and `retention.ms` (negative: no bound); both count only if cleanup.policy has `delete`."""

    deletes: bool
    retention_bytes: int
    retention_ms: int


class RetentionDecision(Value):
    """The segments below offset `delete_before` (None: none) are to be deleted, after a roll if `roll`. The counts say
    why: segments below the log start offset, beyond the size, beyond the age. `future_timestamp_ms` is of a record so
    far ahead of the clock that its segment, and all behind it, will stay for long (-1: there is none)."""

    delete_before: int | None = None
    roll: bool = False
    start_offset_count: int = 0
    size_count: int = 0
    age_count: int = 0
    future_timestamp_ms: int = -1


def decide(
    segments: Sequence[Segment], policy: RetentionPolicy, now_ms: int, high_watermark: int, log_start_offset: int
) -> RetentionDecision:
    """Retention's decision for one log. `segments` are oldest first, the last one active."""
    deletable = _deletable(segments, high_watermark)
    start_offset_count = _count(deletable, lambda each: each.end_offset <= log_start_offset and each != segments[-1])
    size_count = age_count = 0
    future_timestamp_ms = -1
    if policy.deletes:
        left = deletable[start_offset_count:]
        size_count = _beyond_size(left, sum(each.size_bytes for each in segments[start_offset_count:]), policy)
        age_count = _beyond_age(left[size_count:], now_ms, policy)
        future_timestamp_ms = _future_timestamp(left[size_count + age_count :], now_ms, policy)
    count = start_offset_count + size_count + age_count
    if count == 0:
        return RetentionDecision(future_timestamp_ms=future_timestamp_ms)
    return RetentionDecision(
        # A log start offset in the middle of a segment must not move back to its beginning.
        delete_before=max(segments[count - 1].end_offset, log_start_offset),
        roll=count == len(segments),
        start_offset_count=start_offset_count,
        size_count=size_count,
        age_count=age_count,
        future_timestamp_ms=future_timestamp_ms,
    )


def _deletable(segments: Sequence[Segment], high_watermark: int) -> Sequence[Segment]:
    """Those that lie wholly below the high watermark, without an empty active segment."""
    count = _count(segments, lambda each: each.end_offset <= high_watermark)
    if count == len(segments) and count > 0 and segments[-1].size_bytes == 0:
        count -= 1
    return segments[:count]


def _count(segments: Sequence[Segment], condition: Callable[[Segment], bool]) -> int:
    """How many segments from the oldest on satisfy the condition."""
    return next((index for index, each in enumerate(segments) if not condition(each)), len(segments))


def _beyond_size(segments: Sequence[Segment], size_bytes: int, policy: RetentionPolicy) -> int:
    """As many of the oldest as can go without making the log smaller than retention.bytes."""
    if policy.retention_bytes < 0:
        return 0
    excess_bytes = size_bytes - policy.retention_bytes
    count = 0
    for segment in segments:
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            break
        count += 1
    return count


def _beyond_age(segments: Sequence[Segment], now_ms: int, policy: RetentionPolicy) -> int:
    """A segment is as old as its newest record; one without timestamps as old as its file."""
    if policy.retention_ms < 0:
        return 0
    return _count(segments, lambda each: now_ms - _newest_ms(each) > policy.retention_ms)


def _future_timestamp(kept: Sequence[Segment], now_ms: int, policy: RetentionPolicy) -> int:
    """The timestamp of the oldest segment that stays, where only the time keeps it."""
    if policy.retention_ms < 0 or not kept or kept[0].largest_timestamp_ms < now_ms + _FAR_FUTURE_MS:
        return -1
    return kept[0].largest_timestamp_ms


def _newest_ms(segment: Segment) -> int:
    return segment.largest_timestamp_ms if segment.largest_timestamp_ms >= 0 else segment.modified_ms
