"""`LogScrub`: reads the segments of all logs again, slowly, and says what is damaged.

One asyncio task; the steps run on the log manager's threads, one at a time. It begins with the active segments, as a
start after a clean stop trusts them, and a start after a kill trusts what lies before the recovery point. This pass is
`_OPENED_SPEED` times as fast as the later ones and begins at once. Logs that are opened later get the same.

Then it reads the sealed segments, from time to time. Such a pass takes the logs in the order they have when it begins,
from one drawn at random. So a broker that is restarted often does not always check the same ones. A finding is logged
once at ERROR with file and position; damage that was known before is not told again.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.turns import in_slices

logger = logging.getLogger(__name__)

_STEP_BYTES = 1 << 20
_OPENED_SPEED = 8
_IDLE_S = 10.0
_MOST_UNREADABLE = 16  # places of one log; behind so many there is more wrong than a sector
_INDEX_SUFFIX = {SCRUB_OFFSET_INDEX: "index", SCRUB_TIME_INDEX: "timeindex", SCRUB_TRANSACTION_INDEX: "txnindex"}


class ScrubProgress(NamedTuple):
    """The scrub's work since the start. `log` is the one it is at, "" between passes."""

    pass_count: int
    checked_bytes: int
    finding_count: int
    log: str


class LogScrub:
    """`start` once the logs are open, `stop` before they are closed. `progress` says how far it is."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        #: The tags of the open logs whose active segments were looked at. Tags are given before a log is opened, and a
        #: log that opens slowly comes after others with higher ones.
        self._checked_tags: set[int] = set()
        self.progress = ScrubProgress(0, 0, 0, "")

    def start(self) -> None:
        """Begin; needs the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="scrub")

    async def stop(self) -> None:
        """Return when nothing of it is under way. A step that is goes on to its end, which closing the log waits for
        anyway: what it finds, and may have mended, is told."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _pause(self, seconds: float) -> None:
        """Until then, or until the scrub is stopped."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _pause_for(self, read_bytes: float) -> None:
        """As long as these bytes take at the rate that is set. A rate that changes meanwhile counts soon."""
        while read_bytes > 0 and not self._is_over():
            rate = self._bytes_per_second()
            seconds = min(read_bytes / rate, _IDLE_S)
            await self._pause(seconds)
            read_bytes -= seconds * rate

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._bytes_per_second() <= 0

    def _bytes_per_second(self) -> int:
        return self._manager.config.get_int("pybroker.scrub.bytes.per.second")

    async def _run(self) -> None:
        clock = self._manager.clock
        due_ms = clock.monotonic_ms() + self._manager.config.get_int("log.initial.task.delay.ms")
        while not self._stopping.is_set():
            try:
                await self.check_opened()
                if not self._is_over() and clock.monotonic_ms() >= due_ms:
                    due_ms = clock.monotonic_ms() + self._manager.config.get_int("pybroker.scrub.interval.ms")
                    await self.check_all()
            except Exception:
                logger.exception("the scrub failed; it goes on with the next pass")
            await self._pause(_IDLE_S)

    async def check_opened(self) -> None:
        """Read what the active segments had when their logs were opened, of those that were opened since the last
        call. Ends early when the scrub is turned off."""
        logs = [each for each in self._manager.logs.values() if each.tag not in self._checked_tags]
        if logs:
            self._checked_tags &= {each.tag for each in self._manager.logs.values()}
        before, began_ms = self.progress, self._manager.clock.monotonic_ms()
        async for log in in_slices(sorted(logs, key=lambda each: each.tag)):
            if self._is_over():
                return
            await self._check(log, ScrubPass(opened=True), _OPENED_SPEED)
            if self._is_over():
                return  # perhaps in the middle of this one: it is read anew when the scrub is turned on
            self._checked_tags.add(log.tag)
        self.progress = self.progress._replace(log="")
        if logs:
            logger.info(
                "the active segments of %d logs were checked in %d ms: %d bytes, damage at %d places",
                len(logs),
                self._manager.clock.monotonic_ms() - began_ms,
                self.progress.checked_bytes - before.checked_bytes,
                self.progress.finding_count - before.finding_count,
            )

    async def check_all(self) -> None:
        """One pass over the sealed segments of all logs that are open now; ends early when the scrub is turned off."""
        logs = list(self._manager.logs.values())
        first = random.randrange(len(logs)) if logs else 0
        async for log in in_slices(logs[first:] + logs[:first]):
            if self._is_over():
                break
            await self._check(log, ScrubPass(), 1)
        self.progress = self.progress._replace(pass_count=self.progress.pass_count + 1, log="")

    async def _check(self, log: PartitionLog, scrub_pass: ScrubPass, speed: int) -> None:
        """Read one log, at `speed` times the rate that is set."""
        self.progress = self.progress._replace(log=str(log))
        unreadable_count = 0
        while not log.closing and not self._is_over() and unreadable_count < _MOST_UNREADABLE:
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
            await self._pause_for(step.read_bytes / speed)

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
