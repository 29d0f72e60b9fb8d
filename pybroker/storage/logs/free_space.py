"""`FreeSpaceWatch`: keeps producers from filling a disk to its last block. On the asyncio loop. File systems are asked
on threads of its own, one for each log dir: one that hangs does not hold up the others.

A disk with nothing left cannot take what a broker writes beside records: indexes, checkpoints, the offsets of groups.
So below the reserve (pybroker.log.dir.reserve.bytes) Produce is refused, and what frees space goes on.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from pybroker.native.partition import set_below_reserve
from pybroker.observability.event_log import event
from pybroker.profiles.sizes import format_bytes
from pybroker.storage.dirs.directory_space import measure
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.logs.log_manager import LogManager

logger = logging.getLogger(__name__)

#: No disk is filled faster. It bounds what is taken between two looks, and with it how often they are due.
_FASTEST_BYTES_PER_SECOND = 4 << 30
_SHORTEST_S = 0.02
_LONGEST_S = 1.0
#: While producers are refused they wait for the next look.
_LOW_S = 0.25


class FreeSpaceWatch:
    """`look` once the log dirs are loaded, then `start`; `stop` before the logs are closed."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._setting = logs.config.get_int("pybroker.log.dir.reserve.bytes")
        self._executor = ThreadPoolExecutor(len(logs.directories), thread_name_prefix="space")
        self._tasks: list[asyncio.Task[None]] = []

    async def look(self) -> None:
        """Look at all log dirs in service once."""
        await asyncio.gather(*(self._look(each) for each in self._logs.live))

    def start(self) -> None:
        """Go on looking. Needs the running loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch(each), name="free space") for each in self._logs.live]

    async def stop(self) -> None:
        """Look no more. A file system that hangs keeps its thread, and nobody waits for it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _watch(self, directory: LogDirectory) -> None:
        while directory.failure is None:
            await asyncio.sleep(_pause_s(directory))
            try:
                await self._look(directory)
            except Exception:  # a defect: what it protects from is worse
                logger.exception("looking at the free space of %s failed; it is tried again", directory.path)

    async def _look(self, directory: LogDirectory) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._executor, measure, directory.path)
        except OSError as error:
            self._logs.failures.report_directory(directory, "asking for its free space", error)
            return
        if directory.space.update(self._setting, found):
            _tell(directory)
            inside = [log for log in self._logs.logs.values() if log.directory is directory and not log.closing]
            set_below_reserve([log.native for log in inside], directory.space.is_low)


def _pause_s(directory: LogDirectory) -> float:
    space = directory.space
    if space.is_low:
        return _LOW_S
    return min(_LONGEST_S, max(_SHORTEST_S, (space.free_bytes - space.reserve_bytes) / _FASTEST_BYTES_PER_SECOND))


def _tell(directory: LogDirectory) -> None:
    """Once for each time."""
    space = directory.space
    if space.is_low:
        logger.error(
            "log dir %s has %s free, less than its reserve of %s (pybroker.log.dir.reserve.bytes): producers are "
            "refused until %s are free. Enlarge the disk, move partitions to another log dir, or shorten retention "
            "(retention.ms, retention.bytes) of what may expire sooner",
            directory.path,
            format_bytes(space.free_bytes),
            format_bytes(space.reserve_bytes),
            format_bytes(space.enough_bytes),
            extra=event("low_space", directory=str(directory.path)),
        )
    else:
        logger.warning(
            "log dir %s has %s free again: producers are served",
            directory.path,
            format_bytes(space.free_bytes),
            extra=event("low_space", directory=str(directory.path)),
        )
