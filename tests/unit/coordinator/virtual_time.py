"""Runs coroutines in virtual time: a wait takes no time, and how busy the machine is decides nothing.

For code that waits for nothing outside of its loop: where others do the work, in threads or processes, time must pass.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Selector(selectors.SelectSelector):
    """Puts the clock forward by what the loop would sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everybody waits for something that nothing will bring about")
        if not ready and timeout is not None:
            self.now_s += max(timeout, 0.0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s


def run(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`. AssertionError where that would never return."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(main)
