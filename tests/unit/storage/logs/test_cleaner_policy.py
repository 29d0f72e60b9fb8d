"""What of a compacted log is dirty, what may be cleaned, and when it is worth it: Kafka's rules."""

from __future__ import annotations

import pytest

from pybroker.native.partition import PartitionState, Segment
from pybroker.storage.logs.cleaner_policy import CompactionPolicy, FirstDirty, LogToClean, examine, first_dirty

NOW_MS = 1_000_000
UNBOUNDED_MS = 2**63 - 1
PLAIN = CompactionPolicy(min_dirty_ratio=0.5, min_lag_ms=0, max_lag_ms=UNBOUNDED_MS)


def state_of(start: int, end: int, *, last_stable_offset: int | None = None) -> PartitionState:
    stable = end if last_stable_offset is None else last_stable_offset
    return PartitionState(start, end, stable, end, end, end, 0, 0, 0, 0, 0)


def log_of(*sizes: int, age_ms: int = 0) -> list[Segment]:
    """Segments of these sizes with ten offsets each, the oldest first; the last one is active."""
    return [
        Segment(index * 10, (index + 1) * 10, size, NOW_MS - age_ms, NOW_MS - age_ms)
        for index, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("checkpoint", "offset", "reset"),
    [(None, 20, False), (20, 20, False), (35, 35, False), (40, 40, False), (19, 20, True), (41, 20, True)],
)
def test_a_checkpoint_outside_the_log_does_not_count(checkpoint: int | None, offset: int, reset: bool) -> None:
    found = first_dirty(state_of(20, 40), checkpoint, deletes=False)
    assert (found.offset, found.reset, bool(found.reset_reason)) == (offset, reset, reset)


@pytest.mark.parametrize(
    ("checkpoint", "cut_offset", "offset"), [(35, 30, 30), (25, 30, 25), (35, 10, 20), (None, 30, 20), (20, 20, 20)]
)
def test_what_came_behind_a_cut_is_dirty(checkpoint: int | None, cut_offset: int, offset: int) -> None:
    state = state_of(20, 40)._replace(cut_offset=cut_offset)
    assert first_dirty(state, checkpoint, deletes=False) == FirstDirty(offset)


def test_that_retention_has_moved_the_start_is_no_news() -> None:
    assert first_dirty(state_of(20, 40), 10, deletes=True) == FirstDirty(20, True, "")
    assert first_dirty(state_of(20, 40), 50, deletes=True).reset_reason


def test_the_active_segment_is_never_cleaned() -> None:
    plan = examine(log_of(100, 200, 400), state_of(0, 30), 0, PLAIN, NOW_MS)
    assert plan == LogToClean(0, 20, 0, 300, 0)
    assert plan.dirty_ratio == 1.0
    assert examine(log_of(400), state_of(0, 10), 0, PLAIN, NOW_MS) == LogToClean(0, 0, 0, 0, 0)


def test_bytes_below_the_first_dirty_offset_are_clean() -> None:
    plan = examine(log_of(100, 200, 400, 800), state_of(0, 40), 10, PLAIN, NOW_MS)
    assert plan == LogToClean(10, 30, 100, 600, 0)
    inside = examine(log_of(100, 200, 400, 800), state_of(0, 40), 15, PLAIN, NOW_MS)
    assert inside == LogToClean(15, 30, 300, 600, 0), (
        "a segment that is dirty in part counts on both sides, as in Kafka"
    )
    done = examine(log_of(100, 200, 400, 800), state_of(0, 40), 30, PLAIN, NOW_MS)
    assert done == LogToClean(30, 30, 700, 0, 0)
    assert not done.is_due(CompactionPolicy(0.0, 0, UNBOUNDED_MS))


@pytest.mark.parametrize(
    ("last_stable_offset", "upper_offset", "dirty_bytes"),
    [(40, 30, 700), (30, 30, 700), (29, 20, 300), (20, 20, 300), (12, 10, 100), (5, 0, 0)],
)
def test_an_open_transaction_ends_what_may_be_cleaned(
    last_stable_offset: int, upper_offset: int, dirty_bytes: int
) -> None:
    state = state_of(0, 40, last_stable_offset=last_stable_offset)
    plan = examine(log_of(100, 200, 400, 800), state, 0, PLAIN, NOW_MS)
    assert (plan.upper_offset, plan.dirty_bytes) == (upper_offset, dirty_bytes)


def test_an_open_transaction_below_what_is_clean() -> None:
    plan = examine(log_of(100, 200, 400, 800), state_of(0, 40, last_stable_offset=12), 15, PLAIN, NOW_MS)
    assert (plan.upper_offset, plan.dirty_bytes) == (15, 0)


def test_min_compaction_lag_keeps_young_segments_and_all_after_them() -> None:
    policy = CompactionPolicy(0.5, min_lag_ms=500, max_lag_ms=UNBOUNDED_MS)
    old, young = log_of(1, 2, 4, 8, age_ms=500), log_of(1, 2, 4, 8, age_ms=499)
    assert examine(old, state_of(0, 40), 0, policy, NOW_MS).upper_offset == 30
    assert examine([old[0], young[1], *old[2:]], state_of(0, 40), 0, policy, NOW_MS).upper_offset == 10
    assert examine(young, state_of(0, 40), 0, policy, NOW_MS).dirty_bytes == 0
    # Without timestamps the file's own time counts.
    unstamped = [each._replace(largest_timestamp_ms=-1) for each in young]
    assert examine(unstamped, state_of(0, 40), 0, policy, NOW_MS).dirty_bytes == 0


def test_the_dirty_ratio_must_be_above_the_bound() -> None:
    assert not LogToClean(10, 20, 100, 100, 0).is_due(PLAIN)
    assert LogToClean(10, 20, 100, 101, 0).is_due(PLAIN)
    assert LogToClean(10, 20, 100, 1, 0).is_due(CompactionPolicy(0.0, 0, UNBOUNDED_MS))
    assert not LogToClean(0, 0, 0, 0, 0).is_due(CompactionPolicy(0.0, 0, UNBOUNDED_MS))


def test_max_compaction_lag_overrules_the_ratio() -> None:
    policy = CompactionPolicy(0.9, min_lag_ms=0, max_lag_ms=1000)
    segments = log_of(100, 10, 10)
    assert examine(segments, state_of(0, 30), 10, policy, NOW_MS, NOW_MS - 1000).overdue_ms == 0
    plan = examine(segments, state_of(0, 30), 10, policy, NOW_MS, NOW_MS - 1001)
    assert plan.overdue_ms == 1
    assert plan.is_due(policy)
    assert examine(segments, state_of(0, 30), 10, policy, NOW_MS, -1).overdue_ms == 0, "no batch has a timestamp"
    clean = examine(segments, state_of(0, 30), 20, policy, NOW_MS, NOW_MS - 10**6)
    assert clean.overdue_ms == 0
    blocked = examine(segments, state_of(0, 30, last_stable_offset=10), 10, policy, NOW_MS, NOW_MS - 1001)
    assert not blocked.is_due(policy), "overdue, but an open transaction lies in the way"


def test_overdue_logs_go_first_then_the_filthiest() -> None:
    logs = [
        LogToClean(0, 10, 50, 50, 0),
        LogToClean(0, 10, 99, 1, 5),
        LogToClean(0, 10, 10, 90, 0),
        LogToClean(0, 10, 90, 10, 1),
    ]
    assert sorted(logs, key=lambda each: each.rank, reverse=True) == [logs[3], logs[1], logs[2], logs[0]]
