"""Rows of the comparison: a figure of ours, the peer's, their ratio, and the limit that decides pass or fail."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pybroker.results.context import detect
from pybroker.results.row import time_text


@dataclass(frozen=True)
class Row:
    """One line. `ratio` is ours over theirs; it must be at most `limit`, or at least it when `at_least`."""

    shape: str
    metric: str
    ours: float
    theirs: float
    limit: float
    at_least: bool = False

    @property
    def ratio(self) -> float:
        """Ours over theirs; infinite when theirs is 0."""
        return self.ours / self.theirs if self.theirs else float("inf")

    @property
    def passed(self) -> bool:
        """Whether the limit holds."""
        return self.ratio >= self.limit if self.at_least else self.ratio <= self.limit

    def as_json(self) -> dict[str, Any]:
        """The row with what follows from it."""
        return {**asdict(self), "ratio": self.ratio, "passed": self.passed}


def text_table(rows: Sequence[Row], ours: str, theirs: str) -> str:
    """The rows for a terminal."""
    lines = [f"{'shape':34} {'metric':16} {ours:>14} {theirs:>14} {'ratio':>7}  limit"]
    for row in rows:
        sign = ">=" if row.at_least else "<="
        verdict = "pass" if row.passed else "FAIL"
        figures = f"{row.ours:14.3f} {row.theirs:14.3f} {row.ratio:7.2f}"
        lines.append(f"{row.shape:34} {row.metric:16} {figures}  {sign} {row.limit:g} {verdict}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Section:
    """The rows of one section, and the names of those that stand on either side."""

    ours: str
    theirs: str
    rows: Sequence[Row]

    def as_json(self) -> dict[str, Any]:
        """As it is saved."""
        return {"sides": {"ours": self.ours, "theirs": self.theirs}, "rows": [row.as_json() for row in self.rows]}


def verdict(sections: Mapping[str, Section], output: Path, *, quick: bool) -> int:
    """Say how many rows fail; the exit status. Figures of a quick run mean nothing."""
    rows = [row for section in sections.values() for row in section.rows]
    failed = sum(not row.passed for row in rows)
    print(f"\n{failed} of {len(rows)} rows fail; saved in {output}")
    return 1 if failed and not quick else 0


def save(
    path: Path,
    sections: Mapping[str, Section],
    facts: Mapping[str, Any],
    raw: Sequence[Any],
    data: Path,
    figures: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write rows, what was compared, and every single measurement; `data` is where the brokers kept their logs.
    `figures` are values by peer, shape and metric. `pybroker bench publish` reads it."""
    context = detect(data, Path(__file__).parent)
    document = {
        "version": 1,
        "time": time_text(time.time()),
        "commit": context.commit,
        "commit_time": context.commit_time,
        "hardware": context.hardware(),
        "facts": facts,
        "sections": {name: section.as_json() for name, section in sections.items()},
        "measurements": raw,
        **({"figures": list(figures)} if figures else {}),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
