"""`LogRepair`: what is done when the data plane says that a write, a read or a sync of a log has failed. On the asyncio
loop; looking at files and repairing on the log manager's threads.

A log that cannot be written is cut to what was written whole, again and again until that succeeds, as after a full
disk. Lasting failures go to `LogFailures`, which decides what goes out of service.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable

from pybroker.native.broker import OFFLINE_SYNC, OFFLINE_WRITE
from pybroker.native.errors import NativeError, SyncFailed
from pybroker.storage.logs.log_failures import Consequence, consequence
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.partition_log import PartitionLog

logger = logging.getLogger(__name__)

#: Between attempts to repair a log that cannot be written, or to open one, on a full disk for example.
REPAIR_INTERVAL_S = 5

#: Between looks at a log that others are at work on.
_BUSY_INTERVAL_S = 0.05


class LogRepair:
    """Takes OFFLINE events."""

    def __init__(
        self,
        logs: LogManager,
        open_again: Callable[[PartitionLog], None],
        go_on: Callable[[PartitionLog], Awaitable[None]],
    ) -> None:
        """`open_again` closes a log that the data plane has given up, though nothing is wrong with its disk, and opens
        it later; `go_on` is called with one that was repaired."""
        self._logs = logs
        self._open_again = open_again
        self._go_on = go_on

    async def on_offline(self, tag: int, what: int, error: int) -> None:
        """An OFFLINE event: a write, a read or a sync failed."""
        log = self._logs.by_tag(tag)
        if log is None or log.closing:
            return
        if what == OFFLINE_SYNC:
            self._on_sync_failed(log, SyncFailed(error))
            return
        failure: NativeError | None = NativeError(error)
        is_write = what == OFFLINE_WRITE
        outcome = consequence(NativeError(error))
        if outcome is Consequence.PARTITION:
            # That says in words what is wrong. Nothing is when a reader has met a name that retention took away.
            failure = await self._look_at_files(log) or (failure if is_write else None)
        if failure is None and error == -errno.ENODATA:
            # The log goes on in a new segment. A write may have made the file long enough again, with zeros inside.
            logger.error(
                "%s: a read came to the end of a file that something else has cut. Fetches of what is missing are "
                "answered CORRUPT_MESSAGE, all else is served; `pybroker log check` names it",
                log,
            )
            # Recovery would end the log at the hole. From now on it begins behind it.
            await self._logs.write_checkpoints()
        elif failure is None:
            logger.debug("%s: a read failed (%s), though its files are in order", log, NativeError(error))
        elif is_write and outcome is Consequence.NOTHING:
            await self._repair(log, failure)
        else:
            self._logs.failures.report(log, "a write" if is_write else "a read", failure)

    def _on_sync_failed(self, log: PartitionLog, error: SyncFailed) -> None:
        if consequence(error) is not Consequence.NOTHING:
            self._logs.failures.report(log, "a sync", error)
            return
        # The data plane has given the log up, and the disk is not at fault.
        logger.error("%s: it could not be brought to the disk (%s), and is opened again", log, error)
        self._open_again(log)

    async def _look_at_files(self, log: PartitionLog) -> NativeError | None:
        """The fault of a log's files; None when there is none."""
        while not log.closing:
            try:
                await log.run(log.native.check_files)
            except NativeError as found:
                if found.errno != errno.EBUSY:
                    return found
                await asyncio.sleep(_BUSY_INTERVAL_S)
            else:
                return None
        return None

    async def _repair(self, log: PartitionLog, error: NativeError) -> None:
        """A write failed. Cut the log to what was written whole and go on.

        On a full disk the next write fails as well; until a repair is due again, clients are refused without trying.
        """
        logger.error("%s: a write failed (%s); the log is repaired", log, error)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, log.repaired_s + REPAIR_INTERVAL_S - loop.time()))
        if self._logs.by_tag(log.tag) is not log:
            return
        log.repaired_s = loop.time()
        is_first = True
        while not log.closing:
            try:
                await log.run(log.native.repair)
            except NativeError as failure:
                if consequence(failure) is not Consequence.NOTHING:
                    self._logs.failures.report(log, "repairing it", failure)
                    return
                if is_first:
                    logger.error(
                        "%s: it cannot be repaired and takes no records; tried again every %d s: %s",
                        log,
                        REPAIR_INTERVAL_S,
                        failure,
                    )
                is_first = False
                await asyncio.sleep(REPAIR_INTERVAL_S)
            else:
                logger.warning("%s: repaired; it takes records again", log)
                await self._go_on(log)
                return
