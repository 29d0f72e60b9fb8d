"""A table of what one call costs, out of the rounds of pytest-benchmark: median, its interval, spread, drift, MB/s.

The interval holds the true median with 95 % (order statistics, as in the pool of results), the spread is that of the
middle half of the rounds. The drift is by how much the later half of the rounds took longer than the earlier one: far
from 0, the machine changed while it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pybroker.results.intervals import median_fields

_HEADER = f"{'ns a call':32} {'median':>12} {'95 % interval':>25} {'spread':>8} {'drift':>8} {'MB/s':>9}"


def table(measured: Sequence[tuple[str, Mapping[str, Any], Sequence[float]]]) -> list[str]:
    """Lines for a terminal from (name, extra info with `calls` and perhaps `payload_bytes`, seconds of each round)."""
    return [_HEADER, *(_line(*one) for one in measured)] if measured else []


def _line(name: str, extra: Mapping[str, Any], seconds: Sequence[float]) -> str:
    rounds = np.asarray(seconds) / int(extra["calls"]) * 1e9
    fields = median_fields(list(rounds))
    median = fields["value"]
    low, high = (fields.get(bound) for bound in ("confidence_low", "confidence_high"))
    interval = f"{low:,.1f} .. {high:,.1f}" if low is not None and high is not None else "too few rounds"
    quarter, three_quarters = np.percentile(rounds, [25, 75])
    earlier, later = np.array_split(rounds, 2)
    drift = 100 * (np.median(later) - np.median(earlier)) / median if later.size else 0.0
    payload = int(extra.get("payload_bytes", 0))
    speed = f"{payload / median * 1e3:9,.0f}" if payload else " " * 9
    spread = 100 * (three_quarters - quarter) / median
    return f"{name:32} {median:12,.1f} {interval:>25} {spread:6.1f} % {drift:+6.1f} % {speed}"
