"""The median of a sample and what can be said of the median of the population, whatever its distribution."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence

LEVEL = 0.95
#: Above it the normal approximation is good to a rank.
_EXACT_COUNT = 200


@functools.cache
def _rank(count: int, level: float) -> int:
    """How many of the smallest values may be left out: as many as the binomial distribution allows on either side."""
    if count > _EXACT_COUNT:
        z = statistics.NormalDist().inv_cdf((1 + level) / 2)
        return int(count / 2 - z * math.sqrt(count) / 2)
    tail, rank = 0.0, 0
    while rank < count // 2:
        tail += math.comb(count, rank) / 2**count
        if 2 * tail > 1 - level:
            break
        rank += 1
    return rank


def median_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """The narrowest pair of order statistics, symmetric in rank, that holds the median with at least probability
    `level`: how many values lie below it is binomial. None where the sample is too small for that (fewer than six
    values for 95 %)."""
    count = len(values)
    rank = _rank(count, level)
    if rank == 0:
        return None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[count - rank]


def median_fields(values: Sequence[float]) -> dict[str, float]:
    """`value` and, if there is one, its confidence interval, as fields of a row."""
    fields = {"value": statistics.median(values)}
    interval = median_interval(values)
    if interval is not None:
        fields |= {"confidence": LEVEL, "confidence_low": interval[0], "confidence_high": interval[1]}
    return fields
