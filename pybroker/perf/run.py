"""Runs several loads at once and shows their progress.

The loads are child processes (see `pybroker.perf.load`). The caller's thread waits for them. Ctrl-C ends the loads
early and keeps what they have measured.
"""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from pybroker.perf.load import Interval, Load, RunningLoad

_CHECK_SECONDS = 0.1


class Progress(AbstractContextManager["Progress"]):
    """Prints one line per load on stderr. On a terminal the line is redrawn; elsewhere each interval prints a new line.
    Prints nothing with `quiet`."""

    def __init__(self, names: Sequence[str], quiet: bool) -> None:
        """`names` are those of the loads."""
        from rich.console import Console
        from rich.live import Live

        self._width = max(map(len, names))
        self._lines = {name: f"{name:{self._width}}  waiting for its first interval" for name in names}
        self._quiet = quiet
        terminal = Console(stderr=True)
        self._live = Live(console=terminal, transient=True) if terminal.is_terminal and not quiet else None

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, load: Load, last: Interval) -> None:
        """Show the interval of `load` that has just ended. A shorter rest at the end of the load is not shown."""
        if self._quiet or last.seconds < load.intervals[0].seconds / 2:
            return
        seconds = last.start_s + last.seconds - load.intervals[0].start_s
        latency = last.latency_us
        quantiles = "  ".join(f"{name} {latency[name] / 1000:.2f}" for name in ("p50", "p99", "max"))
        rates = f"{last.mb_per_s:8.1f} MB/s  {last.requests_per_s:9,.0f} requests/s"
        line = f"{load.name:{self._width}}  {seconds:6.1f} s  {rates}  {quantiles} ms"
        self._lines[load.name] = line
        if self._live:
            from rich.text import Text

            self._live.update(Text("\n".join(self._lines.values())))
        else:
            print(line, file=sys.stderr, flush=True)


def run_loads(loads: Sequence[Load], *, quiet: bool) -> bool:
    """Run `loads` at once and wait until all have ended. Returns True when Ctrl-C ended them early. Raises `LoadFailed`
    when a load fails, after the other loads were ended too."""
    finished_intervals: queue.SimpleQueue[tuple[Load, Interval]] = queue.SimpleQueue()
    running: list[RunningLoad] = []
    interrupted = False
    with Progress([load.name for load in loads], quiet) as progress:
        try:
            running += [RunningLoad(load, lambda *each: finished_intervals.put(each)) for load in loads]
            interrupted = _wait(running, finished_intervals, progress)
            # Failed loads come first: `finish` of a failed load raises at once, and `finish` of another load waits for
            # its end.
            for each in sorted(running, key=lambda load: not load.failed):
                each.finish()
        finally:
            for each in running:
                each.end_early()
                each.wait()
    return interrupted


def _wait(
    running: Sequence[RunningLoad], finished_intervals: queue.SimpleQueue[tuple[Load, Interval]], progress: Progress
) -> bool:
    """Show intervals until all loads have ended or one has failed. Returns True when Ctrl-C ended the loads early."""
    interrupted = False
    while any(each.running for each in running) and not any(each.failed for each in running):
        try:
            progress.show(*finished_intervals.get(timeout=_CHECK_SECONDS))
        except queue.Empty:
            continue
        except KeyboardInterrupt:
            interrupted = True
            for each in running:
                each.end_early()
    while not finished_intervals.empty():
        progress.show(*finished_intervals.get())
    return interrupted


def document(loads: Sequence[Load], context: dict[str, Any], interrupted: bool) -> dict[str, Any]:
    """The document that `--output` saves; `pybroker bench publish` and `pybroker perf report` read it. `context` has
    the keys about this run: pybroker's version and commit, the bootstrap address, the hardware, the options."""
    from pybroker.results.row import time_text

    return {
        "version": 1,
        "kind": "perf",
        "time": time_text(time.time()),
        **context,
        "interrupted": interrupted,
        "loads": [load.as_json() for load in loads],
    }
