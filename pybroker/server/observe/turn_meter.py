"""How much CPU time the turns of the control loop take: a turn is what it does between two looks at its descriptors.

`metered_loop` makes a loop that counts; one made elsewhere has no meter. Belongs to the loop's thread.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

LONG_TURN_NS = 20_000_000
"""No turn is meant to take longer."""

_WINDOW_NS = 60_000_000_000


class TurnStatistics(NamedTuple):
    """`longest_s` is over the last minute or two."""

    longest_s: float
    long_count: int


class TurnMeter:
    """`cpu_ns` is the calling thread's; `now_ns` never goes back."""

    def __init__(
        self, cpu_ns: Callable[[], int] = time.thread_time_ns, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._cpu_ns = cpu_ns
        self._now_ns = now_ns
        self._began_ns: int | None = None
        self._window_end_ns = now_ns() + _WINDOW_NS
        self._longest_ns = 0
        self._longest_before_ns = 0
        self._long_count = 0

    def begin(self) -> None:
        """A turn begins."""
        self._began_ns = self._cpu_ns()

    def end(self) -> None:
        """It ends."""
        if self._began_ns is None:
            return
        taken_ns = self._cpu_ns() - self._began_ns
        self._move_window()
        self._longest_ns = max(self._longest_ns, taken_ns)
        self._long_count += taken_ns > LONG_TURN_NS

    def statistics(self) -> TurnStatistics:
        """The times of turns, without this one."""
        self._move_window()
        return TurnStatistics(max(self._longest_ns, self._longest_before_ns) / 1e9, self._long_count)

    def _move_window(self) -> None:
        now_ns = self._now_ns()
        if now_ns < self._window_end_ns:
            return
        is_next = now_ns < self._window_end_ns + _WINDOW_NS
        self._longest_before_ns, self._longest_ns = self._longest_ns if is_next else 0, 0
        self._window_end_ns = now_ns + _WINDOW_NS


class _MeteredSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.meter = TurnMeter()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.meter.end()
        found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        self.meter.begin()
        return found


_meters: WeakKeyDictionary[asyncio.AbstractEventLoop, TurnMeter] = WeakKeyDictionary()


def metered_loop() -> asyncio.AbstractEventLoop:
    """A new event loop with a meter."""
    selector = _MeteredSelector()
    loop = asyncio.SelectorEventLoop(selector)
    _meters[loop] = selector.meter
    return loop


def meter_of(loop: asyncio.AbstractEventLoop) -> TurnMeter | None:
    """A loop's meter; None when it has none."""
    return _meters.get(loop)
