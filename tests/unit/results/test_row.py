"""The schema: what is a row, what is not and why, and which rows are the same measurement."""

from __future__ import annotations

import json
import math
import statistics
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.results.intervals import median_interval
from pybroker.results.row import Reason, Rejection, Row, check

UNTIMED = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
NOW = datetime(2026, 12, 1, tzinfo=UTC)
GOOD: dict[str, Any] = {
    "suite": "load",
    "benchmark": "produce.mb_per_s",
    "unit": "MB/s",
    "better": "higher",
    "value": 1250.5,
    "samples": 3,
    "time": "2026-11-21T10:00:00Z",
    "machine": "a-123456",
    "parameters": {"connections": "4"},
}


def checked(**changes: object) -> Row | Rejection:
    return check({**GOOD, **changes}, "here", NOW)


def test_a_row_comes_back_as_it_was_published() -> None:
    row = checked(confidence=0.95, confidence_low=1200, confidence_high=1300.0, cores=2)
    assert isinstance(row, Row)
    published = json.loads(json.dumps(row.as_json()))
    assert published["schema"] == 1
    assert published["key"] == row.key
    assert check(published, "elsewhere", NOW) == row


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"value": math.nan}, Reason.NOT_A_NUMBER),
        ({"value": -math.inf}, Reason.NOT_A_NUMBER),
        ({"confidence": 0.95, "confidence_low": math.nan, "confidence_high": 1.0}, Reason.NOT_A_NUMBER),
        ({"confidence": 0.95, "confidence_low": 1.0}, Reason.MALFORMED),
        ({"value": None}, Reason.MALFORMED),
        ({"value": "12"}, Reason.MALFORMED),
        ({"value": True}, Reason.MALFORMED),
        ({"samples": -1}, Reason.MALFORMED),
        ({"machine": ""}, Reason.MALFORMED),
        ({"better": "more"}, Reason.MALFORMED),
        ({"time": "yesterday"}, Reason.MALFORMED),
        ({"commit_time": "13 o'clock"}, Reason.MALFORMED),
        ({"parameters": {"connections": 4}}, Reason.MALFORMED),
        ({"time": "2026-12-01T00:05:01Z"}, Reason.CLOCK_SKEW),
        ({"time": "2023-12-31T23:59:59Z"}, Reason.CLOCK_SKEW),
        ({"commit_time": "2026-11-21T10:06:00Z"}, Reason.CLOCK_SKEW),
    ],
)
def test_what_is_no_row_says_why(changes: dict[str, object], reason: Reason) -> None:
    found = checked(**changes)
    assert isinstance(found, Rejection)
    assert found.reason == reason
    assert found.detail


@pytest.mark.parametrize(
    "changes", [{"time": "2026-12-01T00:04:59Z"}, {"commit_time": "2026-11-21T10:04:00Z"}, {"value": 0}]
)
def test_a_clock_may_be_a_little_wrong_and_a_value_nothing(changes: dict[str, object]) -> None:
    assert isinstance(checked(**changes), Row)


def test_the_key_names_the_measurement_and_not_what_it_gave() -> None:
    row = checked()
    assert isinstance(row, Row)
    for same in ({"value": 7.0}, {"samples": 9}, {"kernel": "7.0"}, {"source": "other.json"}):
        other = checked(**same)
        assert isinstance(other, Row)
        assert other.key == row.key
    for different in (
        {"machine": "b"},
        {"commit": "f" * 40},
        {"engine": "direct"},
        {"parameters": {"connections": "5"}},
        {"time": "2026-11-21T10:00:01Z"},
    ):
        other = checked(**different)
        assert isinstance(other, Row)
        assert other.key != row.key


def test_a_small_sample_has_no_interval() -> None:
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert median_interval([6.0, 1.0, 5.0, 2.0, 4.0, 3.0]) == (1.0, 6.0)


@pytest.mark.parametrize(("count", "ranks"), [(10, (2, 9)), (20, (6, 15)), (100, (40, 61)), (200, (86, 115))])
def test_the_interval_has_the_ranks_of_the_binomial_distribution(count: int, ranks: tuple[int, int]) -> None:
    assert median_interval([float(value) for value in range(count, 0, -1)]) == ranks


@UNTIMED
@given(st.lists(st.floats(-1e9, 1e9), min_size=6, max_size=300))
def test_the_interval_holds_the_median(values: list[float]) -> None:
    interval = median_interval(values)
    assert interval is not None
    assert interval[0] <= statistics.median(values) <= interval[1]
