"""Waiting until something holds: for what nobody can be asked to tell of. AssertionError when it takes too long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.02


def until(condition: Callable[[], object], what: str = "it has not come about", seconds: float = WAIT_SECONDS) -> None:
    """Return once `condition()` is true; `what` is said when it is not within `seconds`. Blocks."""
    for _ in _polls(condition, what, seconds):
        time.sleep(_POLL_SECONDS)


async def until_async(
    condition: Callable[[], object], what: str = "it has not come about", seconds: float = WAIT_SECONDS
) -> None:
    """The same on an asyncio thread, where others run meanwhile."""
    for _ in _polls(condition, what, seconds):
        await asyncio.sleep(_POLL_SECONDS)


def _polls(condition: Callable[[], object], what: str, seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        yield
