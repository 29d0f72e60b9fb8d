"""False alarms of change points when a history is looked at after every commit, as it is where each is measured."""

from __future__ import annotations

import numpy as np

from bench.aggregate.changes import MINIMUM_RUN, find_changes

HISTORIES = 1000
COMMITS = 200


def alarmed(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    return any(find_changes(values[:seen]) for seen in range(2 * MINIMUM_RUN, COMMITS + 1))


def test_hardly_any_history_without_a_step_ever_raises_an_alarm() -> None:
    """Noise is Student's t with three degrees of freedom and a deviation of 5 %; seeds make the figure repeatable. 189
    looks at each history are 189 chances for a few outliers at its end to seem a level."""
    source = np.random.default_rng(11)
    alarms = 0
    for _ in range(HISTORIES):
        alarms += alarmed(np.maximum(100 * (1 + source.standard_t(3, COMMITS) * 0.05 / 3**0.5), 1.0))
    assert alarms < 0.02 * HISTORIES, f"{alarms} of {HISTORIES} histories"
