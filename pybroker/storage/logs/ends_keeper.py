"""`EndsKeeper`: detects logs that have lost records.

A file in each log dir (`log_ends`) records for each log how far it reaches and which segments it has. When a log is
opened, the log is compared with its record. While the log is open, this module keeps the record up to date.

A record may claim less than the log has, and never more. So any action that is about to remove segments calls this
module first, and goes on when the lowered record is on the disk. Truncations need no such call: the data plane notes
them itself.

All of this runs on the asyncio loop, except the functions that block: they run on a thread that opens a log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

from pybroker.native.partition import PartitionState, Segment
from pybroker.storage.dirs.full_disk import is_full
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.files.log_ends import FILE_NAME, NO_START, RecordedEnds
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.log_loss import (
    LogLosses,
    Loss,
    LostRecords,
    find_lost_ring,
    find_missing,
    find_short,
    without_deleted,
)
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.turns import in_slices

logger = logging.getLogger(__name__)


class EndsKeeper:
    """`writing` is the lock of the tasks that write a dir's checkpoints. `report` is called with errors of a disk."""

    def __init__(
        self, executor: Executor, writing: asyncio.Lock, report: Callable[[LogDirectory, str, OSError], None]
    ) -> None:
        self.losses = LogLosses()
        self._executor = executor
        self._writing = writing
        self._report = report
        self._lower: dict[LogDirectory, set[PartitionLog]] = {}

    # ---- what is recorded ------------------------------------------------------------------------------------------

    def of(self, log: PartitionLog, state: PartitionState) -> RecordedEnds:
        """The record for an open log."""
        # After a kill the recovery point may be lower than what was recorded as durable before, which still is.
        known = log.sealed_end if log.sealed_generation == state.cut_generation else 0
        durable = max(known, min(state.recovery_point, state.log_end_offset))
        # Below the log start offset nothing is kept, whether it was synced or not.
        is_kept = durable > max(state.log_start_offset, log.planned_start)
        return self._of(log, state, durable if is_kept else 0)

    def of_closed(self, log: PartitionLog, state: PartitionState) -> RecordedEnds:
        """The record for a log that is about to be closed cleanly: all of the log will be durable."""
        segments = log.native.segments()
        log.sealed_generation, log.sealed_end = state.cut_generation, state.log_end_offset
        log.sealed = tuple([(each.base_offset, each.size_bytes) for each in segments if each.size_bytes > 0])
        return self._of(log, state, state.log_end_offset)

    def of_failed(self, log: PartitionLog, state: PartitionState) -> RecordedEnds:
        """The record for a log that has failed: its files may lack the last writes."""
        ends = self.of(log, state)
        return ends if log.lost is not None else ends._replace(written=ends.durable)

    def _of(self, log: PartitionLog, state: PartitionState, durable: int) -> RecordedEnds:
        if log.lost is not None:
            return log.lost
        if log.sealed_generation != state.cut_generation:
            log.sealed, log.sealed_generation, log.sealed_end = (), state.cut_generation, 0
        written = max(durable, min(state.high_watermark, state.log_end_offset))
        start = max(state.log_start_offset, log.planned_start)
        return RecordedEnds(log.topic_id, state.cut_generation, start, durable, written, log.sealed)

    def note_segments(self, log: PartitionLog, state: PartitionState, segments: Sequence[Segment]) -> None:
        """Remember the segments that are sealed and durable. `state` was read before `segments` was listed. The caller
        makes sure that the cleaner does not work on the log."""
        if log.interrupt is None:
            if log.sealed_generation != state.cut_generation:
                log.sealed_generation, log.sealed_end = state.cut_generation, 0
            log.sealed = tuple(
                [
                    (each.base_offset, each.size_bytes)
                    for each in segments[:-1]
                    if each.end_offset <= state.recovery_point
                ]
            )

    async def save_written(
        self,
        directories: Iterable[LogDirectory],
        states: Mapping[PartitionLog, PartitionState],
    ) -> None:
        """Save the records of the logs in the files of their dirs, without a sync."""
        loop = asyncio.get_running_loop()
        for directory in directories:
            own = {}
            async for log, each in in_slices(list(states.items())):
                # The log may have been closed meanwhile. The record made then must not be overwritten.
                if not log.closing and log.directory is directory:
                    own[log.key] = self.of(log, each)
            try:
                await loop.run_in_executor(self._executor, directory.ends.save_written, own)
            except OSError as error:
                self._report(directory, "noting how far its logs are written", error)

    # ---- before segments are removed -------------------------------------------------------------------------------

    async def before_deletion(self, deletions: Iterable[tuple[PartitionLog, int]]) -> None:
        """Each log's segments below its offset are about to be deleted: take them out of the records. Returns when the
        lowered records are on the disk."""
        changed = []
        for log, offset in deletions:
            log.planned_start = max(log.planned_start, offset)
            # The end of the last recorded segment is not known. It stays only if it begins at or above `offset`.
            next_bases = [base for base, _ in log.sealed[1:]]
            log.sealed = tuple(
                [
                    each
                    for number, each in enumerate(log.sealed)
                    if each[0] >= offset or (number < len(next_bases) and next_bases[number] > offset)
                ]
            )
            changed.append(log)
        await self._save_lower(changed)

    async def before_cleaning(self, log: PartitionLog) -> None:
        """The cleaner is about to replace the log's segments: take them out of the record. Returns when the lowered
        record is on the disk."""
        log.sealed = ()
        await self._save_lower([log])

    async def _save_lower(self, logs: Iterable[PartitionLog]) -> None:
        """Lower the records of `logs` on the disk. One write serves all callers that came before it began."""
        due: dict[LogDirectory, list[PartitionLog]] = {}
        for log in logs:
            self._lower.setdefault(log.directory, set()).add(log)
            due.setdefault(log.directory, []).append(log)
        for directory, waiting in due.items():
            # A write of checkpoints under way may still write the higher records, so wait for its end.
            async with self._writing:
                if self._lower.get(directory, set()).isdisjoint(waiting):
                    continue
                lower = {log.key: ends for log in self._lower.pop(directory) if (ends := _lower_of(log, directory))}
                if lower:
                    await self._run(directory, lower)

    async def _run(self, directory: LogDirectory, lower: Mapping[TopicPartition, RecordedEnds]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, _lower_or_remove, directory, lower)
        except OSError as error:
            # The record stays too high. The next start may then report deleted segments as lost, but if the deletion
            # did not go on, the disk could stay full.
            self._report(directory, "writing how far its logs reach", error)

    # ---- as logs open ----------------------------------------------------------------------------------------------

    def recorded(self, directory: LogDirectory, key: TopicPartition, topic_id: bytes) -> RecordedEnds | None:
        """The record of a log that is about to be opened; None when there is no valid one."""
        found = directory.ends.get(key) if directory.ends.is_ours else None
        return found if found is not None and found.topic_id == topic_id else None

    def without_deleted(
        self, directory: LogDirectory, key: TopicPartition, path: Path, recorded: RecordedEnds
    ) -> RecordedEnds:
        """Take segments that were deleted on purpose out of a record, before its log is opened. Returns the lowered
        record.

        `log_loss.without_deleted` knows these segments by their `.deleted` files. Opening the log removes these files,
        so the record on the disk is lowered first. Blocks. Raises OSError.
        """
        lower = without_deleted(path, recorded)
        if lower != recorded:
            directory.ends.put(key, lower)
            saved = directory.ends.last_saved(key)
            if saved is not None:
                _lower_or_remove(directory, {key: without_deleted(path, saved)})
        return lower

    def find_gone(
        self, directories: Iterable[LogDirectory], key: TopicPartition, topic_id: bytes, *, is_deleted: bool
    ) -> tuple[LogDirectory, Loss] | None:
        """For a log whose directory is in no log dir: the loss, and the log dir whose record has the log. None when no
        record has it. `is_deleted` says that the partition was deleted on purpose, which is no loss."""
        for directory in directories:
            if is_deleted:
                directory.ends.forget(key)
                continue
            recorded = self.recorded(directory, key, topic_id)
            path = directory.path / f"{key[0]}-{key[1]}"
            loss = None if recorded is None else find_missing(key, path, recorded)
            if loss is not None:
                return directory, loss
        return None

    def lost(self, loss: Loss) -> LostRecords:
        """Report a loss that no other replica can make good. Returns the error to raise."""
        self.losses.report(loss, is_replicated=False)
        return LostRecords(loss)

    def check_before(self, key: TopicPartition, path: Path, recorded: RecordedEnds | None, is_replicated: bool) -> bool:
        """Compare the files of a log with its record before the log is opened.

        Raises LostRecords when records are missing, unless other replicas have them. Returns True when records on both
        sides of the missing ones are left, so that the files cannot be opened as a shorter log. Blocks.
        """
        loss = None if recorded is None else find_missing(key, path, recorded)
        loss = loss or find_lost_ring(key, path, recorded)
        if loss is None:
            return False
        if not is_replicated:
            raise LostRecords(loss)
        self.losses.report(loss, is_replicated=True)
        return loss.is_inside

    def check_after(
        self, key: TopicPartition, path: Path, recorded: RecordedEnds | None, state: PartitionState, is_replicated: bool
    ) -> None:
        """Compare the start and the end of a log that was opened with its record. Raises LostRecords when something is
        missing, unless other replicas have it. Blocks."""
        loss = (
            None if recorded is None else find_short(key, path, recorded, state.log_start_offset, state.log_end_offset)
        )
        if loss is None:
            return
        if not is_replicated:
            raise LostRecords(loss)
        self.losses.report(loss, is_replicated=True)

    def begin(self, log: PartitionLog, recorded: RecordedEnds | None, state: PartitionState) -> None:
        """The log was opened, with this state: take over what its old record says and is still true."""
        log.directory.ends.forget(log.key)
        loss, generation = self.losses.found.get(log.key), state.cut_generation
        if loss is not None:
            known = recorded or RecordedEnds(log.topic_id, generation, loss.first_offset, 0, 0)
            log.lost = known._replace(durable=max(known.durable, loss.end_offset))
        elif recorded is not None and recorded.generation == generation:
            log.sealed, log.sealed_generation = recorded.segments, recorded.generation
            log.sealed_end = recorded.durable

    def mended(self, log: PartitionLog) -> None:
        """The log has lost nothing any more: other replicas have brought it back, or an operator has accepted the
        loss."""
        if log.lost is not None:
            log.lost = None
            self.losses.forget(log.key)
            logger.warning("%s has again all that its leader has", log)


def _lower_of(log: PartitionLog, directory: LogDirectory) -> RecordedEnds | None:
    """The lowered record of a log for the file of `directory`; None when the record in the file need not be lowered."""
    saved = directory.ends.last_saved(log.key)
    if saved is None or log.lost is not None or saved.topic_id != log.topic_id:
        return None
    bases = {base for base, _ in log.sealed}
    segments = tuple([each for each in saved.segments if each[0] in bases])
    start = saved.start if saved.start == NO_START else max(saved.start, log.planned_start)
    lower = saved._replace(start=start, segments=segments)
    return None if lower == saved else lower


def _lower_or_remove(directory: LogDirectory, lower: Mapping[TopicPartition, RecordedEnds]) -> None:
    """Write lowered records, or remove the whole file of records if the disk is full. Deletions must go on then to make
    room, and with the old records a kill would make them look like a loss."""
    try:
        directory.ends.lower(lower)
    except OSError as error:
        if not is_full(error):
            raise
        logger.warning(
            "%s: no room to lower how far its logs reach. It is removed until the next checkpoint; after a kill before "
            "that the logs are not compared with it",
            directory.path / FILE_NAME,
        )
        directory.ends.remove()
