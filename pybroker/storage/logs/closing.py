"""Closing many logs in order, all durable at the end.

A log that is closed by itself makes some nine syncs, and each waits for the disk. Where a log dir has many, their files
are written first; then its file system is synced once, new leader-epoch-checkpoints take their places, and it is synced
once more. A power cut in between finds what it finds after any stop that was not in order: checkpoints that say less.

Runs on the asyncio loop; the disk is touched on the executor's threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor

from pybroker.native.broker import NativeBroker
from pybroker.native.errors import CloseUnfinished, NativeError, SyncFailed
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.logs.partition_log import PartitionLog

#: From so many logs in a dir on its file system is synced: that waits for what others have written there, too.
TOGETHER = 16
_PER_JOB = 32

Failures = dict[PartitionLog, NativeError]


async def close_in_order(
    broker: NativeBroker, executor: Executor, logs: Iterable[PartitionLog], resigned_error: int
) -> Failures:
    """Take logs away from clients, who are told `resigned_error`, and close them. Those that could not be closed in
    order, and why: with CloseUnfinished nothing that was written is lost, else nothing is known of their newest
    bytes."""
    by_directory: dict[LogDirectory, list[PartitionLog]] = {}
    for log in logs:
        by_directory.setdefault(log.directory, []).append(log)
    closings = [_Closing(broker, executor, *each) for each in by_directory.items()]
    await asyncio.gather(*(each.run(resigned_error) for each in closings))
    return {log: error for each in closings for log, error in each.failures.items()}


class _Closing:
    """The state of one log dir."""

    def __init__(
        self, broker: NativeBroker, executor: Executor, directory: LogDirectory, logs: Sequence[PartitionLog]
    ) -> None:
        self.failures: Failures = {}
        self._broker = broker
        self._executor = executor
        self._path = str(directory.path)
        self._logs = logs

    async def run(self, resigned_error: int) -> None:
        await asyncio.gather(*(log.end_service(resigned_error) for log in self._logs))
        if len(self._logs) < TOGETHER or not self._broker.can_sync_log_dir(self._path):
            await self._each(self._logs, lambda log: log.native.close(clean=True))
            return
        await self._each(self._logs, lambda log: log.native.settle())
        settled = [log for log in self._logs if log not in self.failures]
        # Logs that could not write their indexes have records to be synced as well.
        safe = (log for log in self._logs if isinstance(self.failures.get(log), CloseUnfinished | None))
        await self._sync(list(safe))
        await self._each(self._logs, lambda log: log.native.close(clean=log not in self.failures))
        await self._sync(settled)

    async def _sync(self, logs: Sequence[PartitionLog]) -> None:
        """The file system. A failure is that of all `logs`: it does not say whose."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._broker.sync_log_dir, self._path)
        except NativeError as error:
            self.failures.update((log, SyncFailed(error.code, error.text)) for log in logs)

    async def _each(self, logs: Sequence[PartitionLog], call: Callable[[PartitionLog], None]) -> None:
        """`call` it with each of them; who fails is noted."""

        def run(some: Sequence[PartitionLog]) -> Failures:
            failures = {}
            for log in some:
                try:
                    call(log)
                except NativeError as error:
                    failures[log] = error
            return failures

        loop = asyncio.get_running_loop()
        parts = [logs[start : start + _PER_JOB] for start in range(0, len(logs), _PER_JOB)]
        for failures in await asyncio.gather(*(loop.run_in_executor(self._executor, run, each) for each in parts)):
            self.failures.update((log, error) for log, error in failures.items() if log not in self.failures)
