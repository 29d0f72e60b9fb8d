"""Unlinking the files of segments that were taken off a log, once file.delete.delay.ms is over.

On the asyncio loop; the files are unlinked on worker threads, many logs to a job. A purge that fails, or is skipped
because the log is busy, is left to the next upkeep of the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor

from pybroker.native.errors import NativeError
from pybroker.native.partition import NativePartition
from pybroker.storage.logs.partition_log import PartitionLog, completed

#: Logs that are due within one such span of time are seen to together.
_SPAN_S = 0.1

#: After so long a job leaves the rest to another one.
_LONG_JOB_S = 0.05

Call = Callable[[NativePartition], None]
#: How many calls a job has made, and which of them failed.
_Done = tuple[int, list[tuple[PartitionLog, NativeError]]]


async def call_each(
    executor: Executor, work: Iterable[tuple[PartitionLog, Call]]
) -> list[tuple[PartitionLog, NativeError]]:
    """Run one blocking call per log, many to a job; what failed. Logs that are being closed are left out."""
    left = list(work)
    failed: list[tuple[PartitionLog, NativeError]] = []
    while held := [(log, call) for log, call in left if not log.closing]:
        done_count, errors = await _call_held(executor, held)
        failed += errors
        left = held[done_count:]
    return failed


async def _call_held(executor: Executor, held: list[tuple[PartitionLog, Call]]) -> _Done:
    for log, _ in held:
        log.hold()

    def release() -> None:
        for log, _ in held:
            log.release()

    job = asyncio.get_running_loop().run_in_executor(executor, _call_some, held)
    return await completed(job, release)


def _call_some(work: list[tuple[PartitionLog, Call]]) -> _Done:
    """One job: it ends early when it has taken long, so that logs which are to be closed, and others who want the
    thread, wait for one call at most."""
    errors = []
    until_s = time.monotonic() + _LONG_JOB_S
    for number, (log, call) in enumerate(work, start=1):
        try:
            call(log.native)
        except NativeError as error:
            errors.append((log, error))
        if time.monotonic() >= until_s:
            return number, errors
    return len(work), errors


class SegmentPurge:
    """`due` after segments were taken off a log. `report` is told what failed."""

    def __init__(
        self,
        executor: Executor,
        wall_ms: Callable[[], int],
        report: Callable[[PartitionLog, str, NativeError], None],
    ) -> None:
        self._executor = executor
        self._wall_ms = wall_ms
        self._report = report
        #: By the number of the span on the loop's clock.
        self._logs: dict[int, set[PartitionLog]] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._jobs: set[asyncio.Task[None]] = set()

    def due(self, log: PartitionLog) -> None:
        """The files of what was just taken off the log may go after file.delete.delay.ms."""
        loop = asyncio.get_running_loop()
        span = int((loop.time() + log.config.get_int("file.delete.delay.ms") / 1000) / _SPAN_S) + 1
        if span not in self._logs:
            self._logs[span] = set()

            def begin() -> None:
                self._timers.discard(timer)
                job = loop.create_task(self._purge(self._logs.pop(span)), name="segment purge")
                self._jobs.add(job)
                job.add_done_callback(self._jobs.discard)

            timer = loop.call_at(span * _SPAN_S, begin)
            self._timers.add(timer)
        self._logs[span].add(log)

    async def _purge(self, logs: set[PartitionLog]) -> None:
        now_ms = self._wall_ms()
        # A topic's delay may have become longer meanwhile.
        work = [(log, _Purge(now_ms, now_ms - log.config.get_int("file.delete.delay.ms") + 1)) for log in logs]
        for log, error in await call_each(self._executor, work):
            self._report(log, "unlinking old files", error)

    def cancel(self) -> None:
        """Leave what waits to the next start."""
        for timer in self._timers:
            timer.cancel()


class _Purge:
    """One log's purge, as a call to run in a thread."""

    __slots__ = ("now_ms", "purge_before_ms")

    def __init__(self, now_ms: int, purge_before_ms: int) -> None:
        self.now_ms = now_ms
        self.purge_before_ms = purge_before_ms

    def __call__(self, native: NativePartition) -> None:
        native.upkeep(self.now_ms, self.purge_before_ms)
