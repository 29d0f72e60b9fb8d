"""`PartitionLog`: one open log with where it lies and how it is configured.

Belongs to the asyncio loop. Blocking calls go through `run`, on the log manager's threads; the handle is closed only
when none is under way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from pybroker.config.topic import TopicConfig
from pybroker.native.partition import NativePartition
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.files.log_ends import RecordedEnds
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.turns import pause

P = ParamSpec("P")
T = TypeVar("T")


class PartitionLog:
    """An open log. `tag` names it in the data plane's OFFLINE events."""

    __slots__ = (
        "_call_count",
        "_executor",
        "_idle",
        "closing",
        "config",
        "directory",
        "flushes",
        "interrupt",
        "is_switching",
        "key",
        "lost",
        "marked_bytes",
        "native",
        "path",
        "planned_start",
        "repaired_s",
        "sealed",
        "sealed_end",
        "sealed_generation",
        "tag",
        "topic_id",
    )

    def __init__(
        self,
        key: TopicPartition,
        topic_id: bytes,
        tag: int,
        directory: LogDirectory,
        path: Path,
        config: TopicConfig,
        native: NativePartition,
        executor: Executor,
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.tag = tag
        self.directory = directory
        self.path = path
        self.native = native
        self.configure(config)
        self.closing = False
        #: Bytes appended since the log was opened, as of its last mark; below 0: the bytes that recovery had to read.
        self.marked_bytes = 0
        #: When the log was last repaired after a failed write, by the loop's clock.
        self.repaired_s = -math.inf
        #: Ends a long call under way early, so that closing need not wait for it.
        self.interrupt: Callable[[], None] | None = None
        #: It is about to go on in another log dir: no long call may begin.
        self.is_switching = False
        #: Segments that are durable and stay as they are, (base offset, size), as of a cut of this generation.
        #: All below `sealed_end` was recorded as durable then.
        self.sealed: tuple[tuple[int, int], ...] = ()
        self.sealed_generation = 0
        self.sealed_end = 0
        #: Segments below it may go at any time.
        self.planned_start = 0
        #: The record of a log that has lost some of it since, until other replicas have brought it back.
        self.lost: RecordedEnds | None = None
        self._executor = executor
        self._call_count = 0
        self._idle: asyncio.Future[None] | None = None

    def configure(self, config: TopicConfig) -> None:
        """Remember the topic's configuration; `flushes` says whether the log is synced from time to time. With durable
        acks the data plane syncs by itself, at once."""
        self.config = config
        self.flushes = config.durability == "interval"

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking method of `native` on a worker thread. Not once `closing` is set. A caller that is cancelled
        goes at once; the call goes on, and the handle stays open for it."""
        self.hold()
        call = (lambda: function(*args, **kwargs)) if kwargs else function
        job = asyncio.get_running_loop().run_in_executor(self._executor, call, *(() if kwargs else args))
        return await completed(job, self.release)

    def hold(self) -> None:
        """Keep the handle open until `release`."""
        assert not self.closing, f"{self} is being closed"
        self._call_count += 1

    def release(self) -> None:
        """End of a `hold`."""
        self._call_count -= 1
        if self._call_count == 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def end_service(self, error: int) -> None:
        """Take it away from clients, who are told `error`, and wait for calls under way."""
        loop = asyncio.get_running_loop()
        self.closing = True
        if self.interrupt is not None:
            self.interrupt()
        # First, because calls under way may take as long as a disk likes.
        await loop.run_in_executor(self._executor, self.native.resign, error)
        if self._call_count > 0:
            # One future for all callers, and none of them cancels it for the others.
            if self._idle is None or self._idle.done():
                self._idle = loop.create_future()
            await asyncio.wait([self._idle])

    async def close(self, *, error: int, clean: bool) -> None:
        """`end_service`, and end the handle. NativeError."""
        await self.end_service(error)
        await pause()
        close = partial(self.native.close, clean=clean)
        await asyncio.get_running_loop().run_in_executor(self._executor, close)


async def completed(job: asyncio.Future[T], then: Callable[[], None]) -> T:
    """The result of a thread's job; `then` is called when the thread is done with it, even if the caller is cancelled
    before. Nobody is told then how it ended."""

    def finish(job: asyncio.Future[T]) -> None:
        if not job.cancelled():
            job.exception()
        then()

    try:
        return await asyncio.shield(job)
    finally:
        if job.done():
            then()
        else:
            job.add_done_callback(finish)
