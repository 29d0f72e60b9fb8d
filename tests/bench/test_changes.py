"""Change points: what they have to find, how seldom they may be wrong, and what must not matter to them.

Simulated histories have seeds, so a figure here is always the same figure. Noise is Student's t with three degrees of
freedom and a standard deviation of 5 %.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.aggregate.changes import MINIMUM_RUN, Floats, find_changes
from bench.aggregate.history import analyse

UNTIMED = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
HISTORIES = 1000
COMMITS = 200
DEVIATION = 0.05
WITHIN_COMMITS = 10


def history(source: np.random.Generator, commits: int = COMMITS, deviation: float = DEVIATION) -> Floats:
    return np.maximum(100 * (1 + source.standard_t(3, commits) * deviation / 3**0.5), 1.0)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_step_of_a_tenth_is_found_within_ten_commits(factor: float) -> None:
    """Looked at ten commits after the step, with nothing known of what comes then."""
    source = np.random.default_rng(20261121)
    found = 0
    for _ in range(HISTORIES):
        values, at = history(source), int(source.integers(20, COMMITS - WITHIN_COMMITS + 1))
        values[at:] *= factor
        changes = find_changes(values[: at + WITHIN_COMMITS])
        found += any(abs(change.index - at) <= WITHIN_COMMITS for change in changes)
    assert found >= 0.95 * HISTORIES, f"{found} of {HISTORIES}"


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_under_heavier_noise_it_is_found_in_the_whole_history(factor: float) -> None:
    """Here 5 % is the noise's scale, which makes its deviation 8.7 %."""
    source = np.random.default_rng(20261121)
    found = 0
    for _ in range(HISTORIES):
        values = history(source, deviation=DEVIATION * 3**0.5)
        at = int(source.integers(20, COMMITS - WITHIN_COMMITS + 1))
        values[at:] *= factor
        found += any(abs(change.index - at) <= WITHIN_COMMITS for change in find_changes(values))
    assert found >= 0.95 * HISTORIES, f"{found} of {HISTORIES}"


def test_a_history_without_a_step_has_no_change() -> None:
    source = np.random.default_rng(7)
    alarms = sum(bool(find_changes(history(source))) for _ in range(HISTORIES))
    assert alarms < 0.01 * HISTORIES, f"{alarms} of {HISTORIES}"


def test_a_step_in_the_middle_is_placed_well_and_measured_well() -> None:
    source = np.random.default_rng(8)
    for _ in range(100):
        values = history(source)
        values[120:] *= 1.3
        (change,) = find_changes(values)
        assert abs(change.index - 120) <= 3
        assert change.ratio == pytest.approx(1.3, rel=0.05)


def test_each_of_several_levels_is_found() -> None:
    values = history(np.random.default_rng(9))
    values[50:] *= 1.3
    values[100:] *= 0.7
    values[160:] *= 1.3
    assert [round(change.index, -1) for change in find_changes(values)] == [50, 100, 160]


def test_without_noise_a_step_is_found_where_it_is() -> None:
    values = np.array([10.0] * 30 + [11.0] * MINIMUM_RUN)
    (change,) = find_changes(values)
    assert (change.index, change.before, change.after) == (30, 10.0, 11.0)


def test_a_step_too_small_for_anybody_is_none() -> None:
    assert find_changes(np.array([100.0] * 50 + [102.0] * 50)) == []


def test_outliers_are_no_level() -> None:
    values = history(np.random.default_rng(10))
    values[[20, 70, 71, 130, 199]] *= 10
    values[[21, 150]] /= 10
    assert find_changes(values) == []


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 5 + [2.0] * 6, [0.0] * 30, [1.0] * 20 + [-1.0] * 20])
def test_what_is_no_history_has_no_change(values: list[float]) -> None:
    assert find_changes(np.array(values)) == []


@UNTIMED
@given(st.integers(0, 2**32), st.floats(1e-9, 1e9))
def test_units_do_not_matter(seed: int, unit: float) -> None:
    values = history(np.random.default_rng(seed), 80)
    values[40:] *= 1.5
    assert [each.index for each in find_changes(values * unit)] == [each.index for each in find_changes(values)]


@UNTIMED
@given(st.lists(st.floats(1e-6, 1e12), max_size=60))
def test_changes_are_in_order_and_apart(values: list[float]) -> None:
    edges = [0, *(change.index for change in find_changes(np.array(values))), len(values)]
    assert len(edges) == 2 or min(np.diff(edges)) >= MINIMUM_RUN


def test_a_commit_measured_again_is_one_point() -> None:
    points, positions, median, low, high, level_commits, changes = analyse([5, 5, 5, 8, 8, 0, 0], [1, 9, 2, 4, 6, 7, 8])
    assert (points, positions) == ([2, 5, 7, 8], [0, 3, 5, 6])
    assert (median, low, high, level_commits, changes) == (6, None, None, 4, [])


def test_the_level_is_what_has_been_since_the_last_change() -> None:
    values = [10.0] * 20 + [13.0] * 20
    _, _, median, low, high, level_commits, changes = analyse(list(range(1, 41)), values)
    assert (median, low, high, level_commits) == (13, 13, 13, 20)
    assert [change[:3] for change in changes] == [(20, 10, 13)]


def test_rows_that_are_their_commits_only_ones_do_not_come_back() -> None:
    points, positions, median, *_ = analyse([5, 8, 0, 0], [1.0, 2.0, 3.0, 4.0])
    assert (points, positions, median) == (None, None, 2.5)
