"""Where the level of a benchmark's history changes. NumPy only; pure functions, run by Spark's workers.

Noise of benchmarks has heavy tails, so a history is first drawn in: its logarithm is held near a rolling median, which
keeps steps and takes outliers. Binary segmentation then looks for the split with the largest CUSUM statistic. A step
is only ever as certain as what follows it: `MINIMUM_RUN` commits have to be there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Commits on each side of a change: more than half of those that the rolling median sees.
MINIMUM_RUN = 6
#: The threshold of the CUSUM statistic for a long history, in standard deviations. A short history knows its noise less
#: well, so its threshold is higher by `_SHORTNESS` over the number of commits. Found by simulation: the highest value
#: that still finds a step of 10 % under noise of 5 % within ten commits in 95 % of histories. There is a margin
#: (tests/bench/test_changes.py).
THRESHOLD = 6.55
_SHORTNESS = 3.0
#: A smaller change of level is none that anybody would act on.
MINIMUM_CHANGE = 0.03
#: Noise below this is not believed: counters and sizes have none until something else changes.
_LEAST_SCALE = 0.002
_ROLLING = 11
_CLIP_SCALES = 1.0
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class Change:
    """`index` is the first commit of the new level; `ratio` is the new median over the old one; `score` is the
    statistic, in standard deviations."""

    index: int
    before: float
    after: float
    score: float

    @property
    def ratio(self) -> float:
        """New level over old level."""
        return self.after / self.before


def _scale(logs: Floats) -> float:
    """Robust deviation of the noise, from differences of neighbours, which steps hardly touch."""
    differences = np.diff(logs)
    deviation = float(np.median(np.abs(differences))) * _MAD_TO_DEVIATION / np.sqrt(2)
    return max(deviation, _LEAST_SCALE)


def _drawn_in(logs: Floats, scale: float) -> Floats:
    """Draws each point to within one scale of the median of the eleven around it. At the ends, the first and last
    eleven are used, or a few outliers there would be their own median."""
    half = min(_ROLLING, len(logs) - 1) // 2
    windows = np.lib.stride_tricks.sliding_window_view(logs, 2 * half + 1)
    # Windows are odd, so this is the median, at a sixth of what the function of that name takes.
    medians = np.partition(windows, half, axis=1)[:, half]
    middle = np.concatenate([np.full(half, medians[0]), medians, np.full(half, medians[-1])])
    return middle + np.clip(logs - middle, -_CLIP_SCALES * scale, _CLIP_SCALES * scale)


def _best_split(drawn: Floats, start: int, end: int, deviation: float) -> tuple[int, float]:
    """The split of [start, end) with the largest statistic; (start, 0) when it is too short for any."""
    count = end - start
    if count < 2 * MINIMUM_RUN:
        return start, 0.0
    sums = np.cumsum(drawn[start:end])
    left = np.arange(MINIMUM_RUN, count - MINIMUM_RUN + 1)
    gap = sums[left - 1] - left * (sums[-1] / count)
    statistic = np.abs(gap) / (deviation * np.sqrt(left * (count - left) / count))
    best = int(np.argmax(statistic))
    return start + int(left[best]), float(statistic[best])


def _splits(drawn: Floats, deviation: float) -> list[int]:
    """Binary segmentation, then each split once more between its neighbours, for one found early may not stand."""
    threshold = THRESHOLD * (1 + _SHORTNESS / len(drawn))
    found: list[int] = []
    waiting = [(0, len(drawn))]
    while waiting:
        start, end = waiting.pop()
        split, statistic = _best_split(drawn, start, end, deviation)
        if statistic > threshold:
            found.append(split)
            waiting += [(start, split), (split, end)]
    edges = [0, *sorted(found), len(drawn)]
    kept = [0]
    for end in edges[2:]:
        split, statistic = _best_split(drawn, kept[-1], end, deviation)
        if statistic > threshold:
            kept.append(split)
    return kept[1:]


def find_changes(values: Floats) -> list[Change]:
    """The changes of level in a history, oldest first. `values` are positive figures, one per commit, in the order of
    commits; with a figure that is not positive, or fewer than twelve, no change is found."""
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2 * MINIMUM_RUN or not np.all(values > 0):
        return []
    logs = np.log(values)
    scale = _scale(logs)
    drawn = _drawn_in(logs, scale)
    deviation = max(float(np.sqrt(np.mean(np.diff(drawn) ** 2) / 2)), _LEAST_SCALE)
    edges = [0, *_splits(drawn, deviation), len(values)]
    changes = []
    for start, split, end in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = float(np.median(values[start:split])), float(np.median(values[split:end]))
        if abs(np.log(after / before)) >= np.log1p(MINIMUM_CHANGE):
            _, statistic = _best_split(drawn, start, end, deviation)
            changes.append(Change(split, before, after, statistic))
    return changes
