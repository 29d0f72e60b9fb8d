"""Which segments retention lets go, by Kafka's rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from log_setup import setup

from pybroker.native.partition import Segment
from pybroker.storage.logs.retention import RetentionDecision, RetentionPolicy, decide

NOW_MS = 1_000_000
KEEP = RetentionPolicy(deletes=True, retention_bytes=-1, retention_ms=-1)


def log_of(*sizes: int, age_ms: int = 0, records_each: int = 10) -> list[Segment]:
    """Segments of these sizes, the oldest first, with 10 records each; the last one is active."""
    return [
        Segment(index * records_each, (index + 1) * records_each, size, NOW_MS - age_ms, NOW_MS)
        for index, size in enumerate(sizes)
    ]


def test_nothing_goes_without_a_bound() -> None:
    assert decide(log_of(100, 100, 100, age_ms=10**6), KEEP, NOW_MS, 30, 0) == RetentionDecision()


def test_by_size_only_as_much_as_leaves_the_bound() -> None:
    policy = RetentionPolicy(True, 250, -1)
    assert decide(log_of(100, 100, 100), policy, NOW_MS, 30, 0) == RetentionDecision()
    decision = decide(log_of(100, 100, 100, 50), policy, NOW_MS, 40, 0)
    assert decision == RetentionDecision(delete_before=10, size_count=1)
    assert decide(log_of(100, 100, 100, 100), policy, NOW_MS, 40, 0).delete_before == 10


def test_size_zero_rolls_and_takes_all() -> None:
    decision = decide(log_of(100, 100), RetentionPolicy(True, 0, -1), NOW_MS, 20, 0)
    assert decision == RetentionDecision(delete_before=20, roll=True, size_count=2)


def test_by_age_stops_at_the_first_young_segment() -> None:
    old, young = log_of(1, 1, age_ms=600), log_of(1, 1, 1, age_ms=100)[2:]
    policy = RetentionPolicy(True, -1, 500)
    assert decide([*old, *young], policy, NOW_MS, 30, 0) == RetentionDecision(delete_before=20, age_count=2)
    assert decide([*young, *old], policy, NOW_MS, 30, 0).delete_before is None


def test_age_must_exceed_the_bound() -> None:
    assert decide(log_of(1, age_ms=500), RetentionPolicy(True, -1, 500), NOW_MS, 10, 0).delete_before is None
    assert decide(log_of(1, age_ms=501), RetentionPolicy(True, -1, 500), NOW_MS, 10, 0).roll


def test_without_timestamps_the_file_counts() -> None:
    segments = [Segment(0, 10, 5, -1, NOW_MS - 1000), Segment(10, 20, 5, NOW_MS, NOW_MS)]
    assert decide(segments, RetentionPolicy(True, -1, 500), NOW_MS, 20, 0).delete_before == 10


@pytest.mark.parametrize(("high_watermark", "delete_before"), [(5, None), (10, 10), (19, 10), (20, 20)])
def test_nothing_above_the_high_watermark_goes(high_watermark: int, delete_before: int | None) -> None:
    decision = decide(log_of(1, 1, 1, age_ms=10**6), RetentionPolicy(True, -1, 1), NOW_MS, high_watermark, 0)
    assert decision.delete_before == delete_before


def test_an_empty_active_segment_stays() -> None:
    segments = [*log_of(1, 1, age_ms=1000), Segment(20, 20, 0, -1, 0)]
    decision = decide(segments, RetentionPolicy(True, -1, 500), NOW_MS, 20, 0)
    assert decision == RetentionDecision(delete_before=20, age_count=2)


def test_below_the_log_start_offset_goes_even_from_a_compacted_log() -> None:
    compacted = RetentionPolicy(deletes=False, retention_bytes=0, retention_ms=0)
    assert decide(log_of(1, 1, 1, age_ms=10**6), compacted, NOW_MS, 30, 0).delete_before is None
    decision = decide(log_of(1, 1, 1), compacted, NOW_MS, 30, 25)
    assert decision == RetentionDecision(delete_before=25, start_offset_count=2)


def test_reasons_add_up() -> None:
    segments = [*log_of(100, 100, 100, age_ms=600), Segment(30, 40, 100, NOW_MS, NOW_MS)]
    decision = decide(segments, RetentionPolicy(True, 250, 500), NOW_MS, 40, 10)
    assert (decision.start_offset_count, decision.size_count, decision.age_count) == (1, 0, 2)
    assert decision.delete_before == 30
    assert not decision.roll


def test_retention_rolls_no_segment_that_began_after_its_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision waits for a file to be written; meanwhile a record begins the next segment."""

    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(retention_ms="1000", file_delete_delay_ms="60000")
            await made.append(log, made.clock.now_ms - 5000)
            before_deletion = made.manager.ends.before_deletion

            async def next_segment_begins(deletions: Any) -> None:
                await before_deletion(deletions)
                await log.run(log.native.roll)
                await made.append(log, made.clock.now_ms)

            monkeypatch.setattr(made.manager.ends, "before_deletion", next_segment_begins)
            await made.maintenance.apply_retention()
            assert log.native.state[:2] == (1, 2)
            assert [(each.base_offset, each.end_offset) for each in log.native.segments()] == [(1, 2)]

    asyncio.run(run())
