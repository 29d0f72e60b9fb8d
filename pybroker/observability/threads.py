"""The CPU time of this process's threads, as the kernel counts it. Reads a file for each thread."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

_TASKS = Path("/proc/self/task")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds_by_name() -> dict[str, float]:
    """CPU seconds, user and system, of all threads with one name together. Threads that have ended are not in it."""
    found: Counter[str] = Counter()
    for task in os.listdir(_TASKS):
        try:
            line = (_TASKS / task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        name, _, rest = line.partition("(")[2].rpartition(")")
        values = rest.split()
        # Fields 14 and 15 of proc(5); the state, number 3, is the first one behind the name.
        found[name] += int(values[11]) + int(values[12])
    return {name: ticks / _TICKS_PER_SECOND for name, ticks in sorted(found.items())}
