"""When the machine stood still: a virtual machine whose host takes its CPUs away runs neither broker nor load.

`watched` has pbload's witness run, and all loads that are started meanwhile tell latencies twice: of all requests, and
of those that no stall explains (`bench/load/stats/stalls.h`). Wants root, as it has to go before all other threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.process import ChildProcess, ProcessFailed

VARIABLE = "PBLOAD_STALLS"
# With fewer of all requests left, these say nothing, and the figure is that of all.
_LEAST_SHARE = 0.5

Window = tuple[int, int]
"""From when to when, by the monotonic clock in nanoseconds."""


@contextmanager
def watched(pbload: Path) -> Iterator[None]:
    """Have stalls watched, if the system lets us."""
    # In memory: a witness that waits for the disk that is measured sees nothing meanwhile.
    with tempfile.TemporaryDirectory(prefix="bench-stalls-", dir="/dev/shm") as directory:
        output = Path(directory) / "witness"
        witness = ChildProcess([str(pbload), "witness"], output)
        before = os.environ.get(VARIABLE)
        try:
            try:
                witness.wait_for_line(lambda line: True if line.startswith("watches") else None, 10)
                os.environ[VARIABLE] = str(output)
            except ProcessFailed as refused:
                print(f"stalls of the machine count as the broker's: {refused}", file=sys.stderr)
            yield
        finally:
            os.environ.pop(VARIABLE, None)
            if before is not None:
                os.environ[VARIABLE] = before
            witness.kill()


def latency_us(load: Mapping[str, Any], quantile: str, kind: str = "latency") -> float:
    """A quantile of what no stall explains, or, where nobody watched or hardly anything is left, of all. `kind` is the
    member's name in the load's JSON line, without its unit."""
    is_told = load.get(f"{kind}_undisturbed_share", 0.0) >= _LEAST_SHARE
    return float(load[f"{kind}_undisturbed_us" if is_told else f"{kind}_us"][quantile])


@contextmanager
def stalls_meanwhile(pbload: Path) -> Iterator[list[Window]]:
    """A list that holds the stalls of a block once this has ended: in order, apart, and with margins."""
    windows: list[Window] = []
    if VARIABLE not in os.environ:
        yield windows
        return
    pipe = subprocess.PIPE
    with subprocess.Popen([str(pbload), "stalls"], stdin=pipe, stdout=pipe, text=True) as reader:
        assert reader.stdout is not None
        if reader.stdout.readline() != "watching\n":
            raise RuntimeError(f"pbload cannot read {os.environ[VARIABLE]}; its message is above")
        yield windows
        output, _ = reader.communicate()
    windows += [(start, end) for start, end in json.loads(output)["stalls"]]


def explains(windows: list[Window], span: Window) -> bool:
    """Is at least half of it a stall's?"""
    start, end = span
    within = sum(max(0, min(end, until) - max(start, since)) for since, until in windows)
    return within > 0 and 2 * within >= end - start
