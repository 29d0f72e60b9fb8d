"""Whether two saved runs of the table agree: each figure's spread in one has to meet its spread in the other.

A spread reaches from the least to the greatest value, and at least 5 % to either side of the median. Smaller
differences come from a new process, for example from its memory, and do not show between rounds. A few figures in a
hundred miss by chance, so one in twenty may.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LEAST_SPREAD = 0.05
MISSES = 0.05


def _figures(path: Path) -> dict[tuple[str, ...], list[float]]:
    """By peer, durability, shape and metric."""
    document: Mapping[str, Any] = json.loads(path.read_text())
    rows = document.get("figures")
    if not rows:
        sys.exit(f"{path} holds no figures of `python -m bench.peers.table`")
    names = ("peer", "durability", "shape", "metric")
    return {tuple(str(row.get(name, "")) for name in names): row["values"] for row in rows}


def _spread(values: Sequence[float]) -> tuple[float, float]:
    middle = statistics.median(values)
    return min(*values, middle * (1 - LEAST_SPREAD)), max(*values, middle * (1 + LEAST_SPREAD))


def differences(one: Mapping[Any, list[float]], other: Mapping[Any, list[float]]) -> list[str]:
    """The disagreements, for people: figures whose ranges do not touch, and those that only one run has."""
    found = []
    for name in {**one, **other}:
        where = ", ".join(part for part in name if part)
        if name not in one or name not in other:
            found.append(f"{where}: only in one run")
            continue
        (low, high), (their_low, their_high) = mine, theirs = _spread(one[name]), _spread(other[name])
        if high < their_low or their_high < low:
            texts = (
                f"{statistics.median(values):.4g} ({spread[0]:.4g}-{spread[1]:.4g})"
                for values, spread in ((one[name], mine), (other[name], theirs))
            )
            found.append(f"{where}: {' and '.join(texts)}")
    return found


def agreement(first: Path, second: Path) -> int:
    """Print what does not agree; status 1 when that is more than chance."""
    one, other = _figures(first), _figures(second)
    found = differences(one, other)
    for line in found:
        print(line)
    print(f"{len({**one, **other}) - len(found)} of {len({**one, **other})} figures agree within their spread")
    return 1 if len(found) > MISSES * len({**one, **other}) else 0
