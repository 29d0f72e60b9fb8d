"""`LogScrub`: reads the sealed segments of all logs again, slowly, and says what is damaged.

One asyncio task; the steps run on the log manager's threads, one at a time. A pass takes the logs in the order they
have when it begins, from one drawn at random, so that a broker that is restarted often does not always check the same
ones. A finding is logged once at ERROR with file and position; damage that was known before is not told again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
from typing import NamedTuple

from pybroker.native.errors import NativeError
from pybroker.native.partition import (
    SCRUB_BATCHES,
    SCRUB_NOTHING,
    SCRUB_OFFSET_INDEX,
    SCRUB_TIME_INDEX,
    SCRUB_TRANSACTION_INDEX,
    ScrubPass,
    ScrubStep,
)
from pybroker.storage.log_manager import LogManager
from pybroker.storage.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_STEP_BYTES = 1 << 20
_IDLE_S = 10.0
_MOST_UNREADABLE = 16  # places of one log; behind so many there is more wrong than a sector
_INDEX_SUFFIX = {SCRUB_OFFSET_INDEX: "index", SCRUB_TIME_INDEX: "timeindex", SCRUB_TRANSACTION_INDEX: "txnindex"}


class ScrubProgress(NamedTuple):
    """What the scrub has done since the start. `log` is the one it is at, "" between passes."""

    pass_count: int
    checked_bytes: int
    finding_count: int
    log: str


class LogScrub:
    """`start` once the logs are open, `stop` before they are closed. `progress` says how far it is."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._task: asyncio.Task[None] | None = None
        self.progress = ScrubProgress(0, 0, 0, "")

    def start(self) -> None:
        """Begin; needs the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="scrub")

    async def stop(self) -> None:
        """Return when nothing of it is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _bytes_per_second(self) -> int:
        return self._manager.config.get_int("pybroker.scrub.bytes.per.second")

    async def _run(self) -> None:
        await asyncio.sleep(self._manager.config.get_int("log.initial.task.delay.ms") / 1000)
        clock = self._manager.clock
        due_ms = clock.monotonic_ms()
        while True:
            if self._bytes_per_second() > 0 and clock.monotonic_ms() >= due_ms:
                began_ms = clock.monotonic_ms()
                try:
                    await self.check_all()
                except Exception:
                    logger.exception("the scrub failed; it begins anew with the next pass")
                due_ms = began_ms + self._manager.config.get_int("pybroker.scrub.interval.ms")
            await asyncio.sleep(_IDLE_S)

    async def check_all(self) -> None:
        """One pass over all logs that are open now; ends early when the scrub is turned off."""
        logs = list(self._manager.logs.values())
        first = random.randrange(len(logs)) if logs else 0
        for log in logs[first:] + logs[:first]:
            if self._bytes_per_second() <= 0:
                break
            self.progress = self.progress._replace(log=str(log))
            await self._check(log)
        self.progress = self.progress._replace(pass_count=self.progress.pass_count + 1, log="")

    async def _check(self, log: PartitionLog) -> None:
        scrub_pass = ScrubPass()
        unreadable_count = 0
        while not log.closing and unreadable_count < _MOST_UNREADABLE:
            try:
                step = await log.run(log.native.scrub, scrub_pass, _STEP_BYTES)
            except NativeError as error:
                if not self._tell_unreadable(log, error):
                    return
                unreadable_count += 1
                continue
            self.progress = self.progress._replace(checked_bytes=self.progress.checked_bytes + step.read_bytes)
            if step.finding != SCRUB_NOTHING and not step.known:
                self.progress = self.progress._replace(finding_count=self.progress.finding_count + 1)
                _tell(log, step)
            if step.done:
                return
            await asyncio.sleep(step.read_bytes / max(1, self._bytes_per_second()))

    def _tell_unreadable(self, log: PartitionLog, error: NativeError) -> bool:
        """Whether the pass goes on behind the place."""
        if error.errno != errno.EIO:
            self._manager.failures.report(log, "scrub", error)
            return False
        # A sector of history that cannot be read is no reason to put the whole log dir out of service.
        self.progress = self.progress._replace(finding_count=self.progress.finding_count + 1)
        logger.error("%s: the scrub found a part of the disk that cannot be read: %s", log, error)
        return True


def _tell(log: PartitionLog, step: ScrubStep) -> None:
    name = log.path / f"{step.found_segment:020}"
    if step.finding == SCRUB_BATCHES:
        logger.error(
            "%s.log is damaged at position %d up to %d: fetches of offsets %d to %d are answered CORRUPT_MESSAGE from "
            "now on, everything around them is served. `pybroker log repair` saves what is intact",
            name,
            step.found_position,
            step.found_end_position,
            step.found_offset,
            max(step.found_offset, step.found_end_offset - 1),
        )
    elif step.mended:
        logger.error(
            "%s.%s was damaged at position %d; it has been built again from the batches",
            name,
            _INDEX_SUFFIX[step.finding],
            step.found_position,
        )
    else:
        logger.error(
            "%s.%s is damaged at position %d and could not be built again at once: stop the broker and move "
            "%s.index aside, then the next start builds all indexes of that segment",
            name,
            _INDEX_SUFFIX[step.finding],
            step.found_position,
            name,
        )
