"""CPU time that the host of a virtual machine takes away from it.

A host that bounds the cost of its guests counts the copying for their disks as well. So some hosts stop a guest for
tens of milliseconds, all CPUs at once, when its disk is busy. The kernel counts that as stolen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic

_STAT = Path("/proc/stat")
_STOLEN_FIELD = 7
#: Less is nothing to speak of.
_LEAST_SHARE = 0.02


def stolen_seconds(stat: str) -> dict[str, float]:
    """From each CPU since the machine started, by the text of /proc/stat (proc(5)); nothing where it does not tell."""
    found = {}
    for line in stat.splitlines():
        name, *fields = line.split() or [""]
        if name.startswith("cpu") and name != "cpu" and len(fields) > _STOLEN_FIELD and fields[_STOLEN_FIELD].isdigit():
            found[name] = int(fields[_STOLEN_FIELD]) / os.sysconf("SC_CLK_TCK")
    return found


_Moment = tuple[float, dict[str, float]]
"""A time, and what was stolen from each CPU until then: seconds."""


def _now() -> _Moment:
    try:
        stat = _STAT.read_text()
    except OSError:  # a container without it is told nothing
        stat = ""
    return monotonic(), stolen_seconds(stat)


class StolenTime:
    """Counts the time stolen from now on."""

    def __init__(self, now: Callable[[], _Moment] = _now) -> None:
        """Begin to watch."""
        self._now = now
        self._started = now()

    def note(self, meanwhile: str) -> str | None:
        """A sentence when it is worth one; `meanwhile` is a clause that says what was done."""
        (started, before), (ended, after) = self._started, self._now()
        # Only a CPU that has work can be stolen from, and most of what is measured is one thread.
        stolen = max((after[cpu] - before.get(cpu, 0.0) for cpu in after), default=0.0)
        share = stolen / (ended - started) if ended > started else 0.0
        if share < _LEAST_SHARE:
            return None
        return (
            f"the host took a CPU away for {share:.0%} of the time {meanwhile}: nothing runs on it then, so rates are "
            "lower and the longest latencies longer than the machine's own; no setting of this machine changes that"
        )
