"""Rows of the comparison: a figure of ours, the peer's, their ratio, and the limit that decides pass or fail."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


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


def save(path: Path, sections: Mapping[str, Sequence[Row]], facts: Mapping[str, Any], raw: Sequence[Any]) -> None:
    """Write rows, what was compared, and every single measurement."""
    document = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"system": platform.platform(), "cpu": cpu_name()},
        "facts": facts,
        "sections": {name: [row.as_json() for row in rows] for name, rows in sections.items()},
        "measurements": raw,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def cpu_name() -> str:
    """The model, as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
