"""Whether two saved runs of the table agree: each figure's spread in one has to meet its spread in the other."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def _figures(path: Path) -> dict[tuple[str, str, str, str], list[float]]:
    document: Mapping[str, Any] = json.loads(path.read_text())
    rows = document.get("figures")
    if not rows:
        sys.exit(f"{path} holds no figures of `python -m bench.peers.table`")
    names = ("peer", "durability", "shape", "metric")
    return {tuple(str(row.get(name, "")) for name in names): row["values"] for row in rows}  # type: ignore[misc]


def differences(one: Mapping[Any, list[float]], other: Mapping[Any, list[float]]) -> list[str]:
    """What does not agree, for people: figures whose ranges do not touch, and those that only one run has."""
    found = []
    for name in {**one, **other}:
        where = ", ".join(part for part in name if part)
        if name not in one or name not in other:
            found.append(f"{where}: only in one run")
            continue
        mine, theirs = one[name], other[name]
        if max(mine) < min(theirs) or max(theirs) < min(mine):
            medians = statistics.median(mine), statistics.median(theirs)
            found.append(
                f"{where}: {medians[0]:.4g} ({min(mine):.4g}-{max(mine):.4g}) and "
                f"{medians[1]:.4g} ({min(theirs):.4g}-{max(theirs):.4g})"
            )
    return found


def agreement(first: Path, second: Path) -> int:
    """Print what does not agree; status 1 when anything does not."""
    one, other = _figures(first), _figures(second)
    found = differences(one, other)
    for line in found:
        print(line)
    print(f"{len({**one, **other}) - len(found)} of {len({**one, **other})} figures agree within their spread")
    return 1 if found else 0
