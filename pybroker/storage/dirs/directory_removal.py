"""`DirectoryRemoval`: removes directories that were set aside, now or after a while. On the asyncio loop.

Leftovers go at the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from pathlib import Path

from pybroker.storage.dirs.log_directory import remove_gently


class DirectoryRemoval:
    """`cancel` before the executor is shut down."""

    def __init__(
        self, executor: Executor, drain: Callable[[str], None], before: Callable[[Path], Awaitable[None]]
    ) -> None:
        """`drain` gives most blocks of a file back that is about to go, slowly. It blocks. `before` is called with each
        directory that goes after a while."""
        self._executor = executor
        self._drain = drain
        self._before = before
        self._waiting: set[asyncio.TimerHandle] = set()
        self._removing: set[asyncio.Task[None]] = set()
        #: One directory at a time goes: others want threads too, and the disk.
        self._turn = asyncio.Lock()
        self._cancelled = False

    async def now(self, path: Path) -> None:
        """Return when it is gone."""
        await asyncio.get_running_loop().run_in_executor(
            self._executor, remove_gently, path, self._drain, lambda: self._cancelled
        )

    def later(self, path: Path, delay_ms: int) -> None:
        """After so many ms."""
        loop = asyncio.get_running_loop()

        def begin() -> None:
            self._waiting.discard(handle)
            task = loop.create_task(self._in_turn(path), name="removal of a partition's directory")
            self._removing.add(task)
            task.add_done_callback(self._removing.discard)

        handle = loop.call_later(delay_ms / 1000, begin)
        self._waiting.add(handle)

    async def _in_turn(self, path: Path) -> None:
        await self._before(path)
        async with self._turn:
            await self.now(path)

    def cancel(self) -> None:
        """Begin nothing more; what is under way stops at the next file."""
        self._cancelled = True
        for handle in self._waiting:
            handle.cancel()
        for task in self._removing:
            task.cancel()
