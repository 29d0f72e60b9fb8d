"""`LogCheckpoints`: what is known of all open logs goes to the checkpoints of their log dirs. On the asyncio loop.

The files are written by one at a time, in the order in which the states were read; the disk is touched on threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pybroker.native.partition import PartitionState, partition_states
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.files.log_ends import RecordedEnds
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.ends_keeper import EndsKeeper
from pybroker.storage.logs.log_failures import LogFailures
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.turns import in_slices

#: Reading the states of so many logs takes less than a slice of the loop.
_STATES_AT_ONCE = 500


class LogCheckpoints:
    """The part of `LogManager` that writes checkpoints. `logs` has every open log."""

    def __init__(
        self, directories: Sequence[LogDirectory], executor: ThreadPoolExecutor, failures: LogFailures
    ) -> None:
        self.directories = tuple(directories)
        self.executor = executor
        self.failures = failures
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: The log dirs whose last checkpoints could not be written.
        self._unwritten: set[LogDirectory] = set()
        self._checkpointing = asyncio.Lock()
        self.ends = EndsKeeper(executor, self._checkpointing, failures.report_directory)

    @property
    def live(self) -> list[LogDirectory]:
        """The log dirs that are in service."""
        return [each for each in self.directories if each.failure is None]

    def states(self, logs: Iterable[PartitionLog]) -> dict[TopicPartition, PartitionState]:
        """The states of open logs, read by one call."""
        usable = [log for log in logs if not log.closing]
        return dict(zip([log.key for log in usable], partition_states([log.native for log in usable]), strict=True))

    async def all_states(self) -> dict[PartitionLog, PartitionState]:
        """The states of all open logs, read in slices of the loop: each is what it was at one moment. Some of the logs
        may be closed by now, and another log may be open for the same partition."""
        logs = list(self.logs.values())
        found: dict[PartitionLog, PartitionState] = {}
        async for start in in_slices(range(0, len(logs), _STATES_AT_ONCE), 1):
            some = logs[start : start + _STATES_AT_ONCE]
            states = self.states(some)
            found.update((log, states[log.key]) for log in some if log.key in states)
        return found

    def exposure(self) -> tuple[int, int]:
        """The possible loss by a power cut now: bytes not known to be durable in all logs together, and the age in ms
        of the oldest of them."""
        states = self.states(self.logs.values()).values()
        return sum(each.exposed_bytes for each in states), max((each.exposed_ms for each in states), default=0)

    async def write_checkpoints(self) -> None:
        """Recovery points, high watermarks and log start offsets of every dir, where they changed."""
        async with self._checkpointing:
            await self._write_all_checkpoints()

    async def write_written(self) -> None:
        """Note how far open logs are written, for a start after a kill. Nothing waits for a disk."""
        async with self._checkpointing:
            await self.ends.save_written(self.live, await self.all_states())

    async def correct_checkpoints(self, log: PartitionLog) -> None:
        """Write them if they speak of more than a log has that is about to take records: recovery would trust what
        comes in the place of what was cut. One write is for all logs that ask before it begins."""
        # A write under way may be about to say what was true of the log before it was cut.
        if not self._checkpointing.locked() and not log.directory.tells_more(log.key, log.native.state):
            return
        async with self._checkpointing:
            if log.directory.tells_more(log.key, log.native.state):
                await self._write_all_checkpoints()

    async def _write_all_checkpoints(self) -> None:
        states = await self.all_states()
        placed: dict[TopicPartition, tuple[LogDirectory, PartitionState]] = {}
        ends: dict[TopicPartition, RecordedEnds] = {}
        async for log, state in in_slices(list(states.items())):
            # One that is closed meanwhile is as one that was closed before.
            if not log.closing:
                placed[log.key], ends[log.key] = (log.directory, state), self.ends.of(log, state)
        await self._write_checkpoints(placed, ends)

    async def save_gap_offsets(self) -> None:
        """Bring those to the disk that were noted."""
        loop = asyncio.get_running_loop()
        for directory in self.live:
            try:
                await loop.run_in_executor(self.executor, directory.gap_checkpoint.save)
            except OSError as error:
                self.failures.report_directory(directory, "writing its gap offsets", error)

    async def _write_checkpoints(
        self,
        placed: dict[TopicPartition, tuple[LogDirectory, PartitionState]],
        ends: dict[TopicPartition, RecordedEnds],
    ) -> None:
        loop = asyncio.get_running_loop()
        for directory in self.live:
            if not directory.loaded:
                continue
            own = {key: state for key, (where, state) in placed.items() if where is directory}
            try:
                await loop.run_in_executor(
                    self.executor, directory.write_checkpoints, own, {key: ends[key] for key in own}
                )
            except OSError as error:
                self.failures.report_directory(directory, "writing its checkpoints", error)
                self._unwritten.add(directory)
            else:
                self._unwritten.discard(directory)

    async def _forget_gone(self, key: TopicPartition) -> None:
        """Return when no record speaks of a log that was deleted or has left this broker."""
        async with self._checkpointing:  # a write under way may be the first that speaks of it
            is_recorded = any(each.ends.speaks_of_gone(key) for each in self.live)
        if is_recorded:
            await self.write_checkpoints()
            await self.write_written()
