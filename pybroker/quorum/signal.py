"""`Signal`: lets any number of tasks wait until something has become true. On the asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Signal:
    """`notify` after every change of what others wait for."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Let all who wait look again."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once `holds()`; it is asked at once, and after every `notify`."""
        while not holds():
            await self._event.wait()
