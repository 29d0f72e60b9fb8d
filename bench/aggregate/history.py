"""One benchmark on one machine under one setting, over commits: points, the present level, changes. Run by Spark's
workers, once per history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.aggregate.changes import find_changes
from pybroker.results.intervals import median_interval

#: The schema of `analyse`'s result, for Spark. `positions` say which of the given rows is the first of each commit;
#: where every row is a commit's only one there are neither those nor `points`.
RESULT_SCHEMA = (
    "points array<double>, positions array<int>, median double, confidence_low double, confidence_high double, "
    "level_commits int, changes array<struct<index: int, before: double, after: double, score: double>>"
)


def analyse(commits: Sequence[int], values: Sequence[float]) -> tuple[Any, ...]:
    """`values` with their commits (0: none, a point of its own), in the order of commits. A commit that was measured
    several times is one point, the median."""
    positions = None
    points = np.asarray(values, dtype=np.float64)
    named = np.asarray(commits, dtype=np.int64)
    named = named[named != 0]
    if len(np.unique(named)) < len(named):
        grouped: dict[object, list[int]] = {}
        for position, commit in enumerate(commits):
            grouped.setdefault(commit or (position,), []).append(position)
        positions = [members[0] for members in grouped.values()]
        points = np.array([np.median(points[members]) for members in grouped.values()])
    changes = find_changes(points)
    level = points[changes[-1].index if changes else 0 :]
    low, high = median_interval(level.tolist()) or (None, None)
    found = [(change.index, change.before, change.after, change.score) for change in changes]
    return points.tolist() if positions else None, positions, float(np.median(level)), low, high, len(level), found
