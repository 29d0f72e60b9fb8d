"""`EndsKeeper`: keeps the records of all log dirs (`log_ends`) true while logs are open; compares them as logs open.

A record may say less than a log has, and never more. Any action that takes segments off a log tells this module first,
and goes on when the record is lower on the disk. Cuts are no concern of this module: the data plane notes them itself.

On the asyncio loop, but for `check_before` and `check_after`, which block on a thread that opens a log.
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
    """`writing` is held by whoever writes the checkpoints of a dir. `report` is told of what a disk refuses."""

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
        # A start after a kill may know of less than was recorded before: it is durable all the same.
        known = log.sealed_end if log.sealed_generation == state.cut_generation else 0
        durable = max(known, min(state.recovery_point, state.log_end_offset))
        # Below the log start offset nothing is kept, whether it was synced or not.
        is_kept = durable > max(state.log_start_offset, log.planned_start)
        return self._of(log, state, durable if is_kept else 0)

    def of_closed(self, log: PartitionLog, state: PartitionState) -> RecordedEnds:
        """The same of one that is about to be closed in order: all of it will be durable."""
        segments = log.native.segments()
        log.sealed_generation, log.sealed_end = state.cut_generation, state.log_end_offset
        log.sealed = tuple([(each.base_offset, each.size_bytes) for each in segments if each.size_bytes > 0])
        return self._of(log, state, state.log_end_offset)

    def of_failed(self, log: PartitionLog, state: PartitionState) -> RecordedEnds:
        """The same of one whose files may not have what was written last."""
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
        """Remember segments that are durable and stay as they are. `state` is from before they were listed; no pass of
        the cleaner is at the log."""
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
        """Bring how far logs are written to the files of their dirs, unsynced."""
        loop = asyncio.get_running_loop()
        for directory in directories:
            own = {}
            async for log, each in in_slices(list(states.items())):
                # It may have been closed meanwhile, and what was recorded then is the last word.
                if not log.closing and log.directory is directory:
                    own[log.key] = self.of(log, each)
            try:
                await loop.run_in_executor(self._executor, directory.ends.save_written, own)
            except OSError as error:
                self._report(directory, "noting how far its logs are written", error)

    # ---- before something goes -------------------------------------------------------------------------------------

    async def before_deletion(self, deletions: Iterable[tuple[PartitionLog, int]]) -> None:
        """Return when no record speaks of what lies below the offset of each log: its segments are about to go."""
        changed = []
        for log, offset in deletions:
            log.planned_start = max(log.planned_start, offset)
            # Where the last of them ends is not known, so it stays only if none of it goes.
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
        """Return when no record speaks of the log's segments: they are about to be replaced."""
        log.sealed = ()
        await self._save_lower([log])

    async def _save_lower(self, logs: Iterable[PartitionLog]) -> None:
        """Lower what the files say of `logs`. One write is for all that ask before it begins."""
        due: dict[LogDirectory, list[PartitionLog]] = {}
        for log in logs:
            self._lower.setdefault(log.directory, set()).add(log)
            due.setdefault(log.directory, []).append(log)
        for directory, waiting in due.items():
            # A write of checkpoints that is under way began with what was true before, and is waited for.
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
            # The record stays too high, and a start may take for lost what is about to be deleted: better than a disk
            # that stays full.
            self._report(directory, "writing how far its logs reach", error)

    # ---- as logs open ----------------------------------------------------------------------------------------------

    def recorded(self, directory: LogDirectory, key: TopicPartition, topic_id: bytes) -> RecordedEnds | None:
        """The record that counts for a log about to be opened; None: nothing is known of it."""
        found = directory.ends.get(key) if directory.ends.is_ours else None
        return found if found is not None and found.topic_id == topic_id else None

    def without_deleted(
        self, directory: LogDirectory, key: TopicPartition, path: Path, recorded: RecordedEnds
    ) -> RecordedEnds:
        """The part of a record that counts before the log is opened, see `log_loss.without_deleted`. Opening the log
        removes the signs of it, so the record is lowered first. Blocks. OSError."""
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
        """A loss of a log whose directory is nowhere, and the log dir that it lay in. `is_deleted`: a sign says that it
        went on purpose."""
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
        """The error for a loss that nobody can make good; it is reported."""
        self.losses.report(loss, is_replicated=False)
        return LostRecords(loss)

    def check_before(self, key: TopicPartition, path: Path, recorded: RecordedEnds | None, is_replicated: bool) -> bool:
        """Compare the files of a log before it is opened. LostRecords, unless other replicas have what is missing; then
        whether what is left is no beginning of the log. Blocks."""
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
        """Compare the ends of a log that was opened. LostRecords, unless other replicas have what is missing.
        Blocks."""
        loss = (
            None if recorded is None else find_short(key, path, recorded, state.log_start_offset, state.log_end_offset)
        )
        if loss is None:
            return
        if not is_replicated:
            raise LostRecords(loss)
        self.losses.report(loss, is_replicated=True)

    def begin(self, log: PartitionLog, recorded: RecordedEnds | None, state: PartitionState) -> None:
        """The log is open, with this state: what was recorded of it goes on being true."""
        log.directory.ends.forget(log.key)
        loss, generation = self.losses.found.get(log.key), state.cut_generation
        if loss is not None:
            known = recorded or RecordedEnds(log.topic_id, generation, loss.first_offset, 0, 0)
            log.lost = known._replace(durable=max(known.durable, loss.end_offset))
        elif recorded is not None and recorded.generation == generation:
            log.sealed, log.sealed_generation = recorded.segments, recorded.generation
            log.sealed_end = recorded.durable

    def mended(self, log: PartitionLog) -> None:
        """Other replicas have brought back what a log had lost, or somebody has accepted that it is lost."""
        if log.lost is not None:
            log.lost = None
            self.losses.forget(log.key)
            logger.warning("%s has again all that its leader has", log)


def _lower_of(log: PartitionLog, directory: LogDirectory) -> RecordedEnds | None:
    """The lower record for a log that the file of `directory` must get; None when the file says no more than is
    true."""
    saved = directory.ends.last_saved(log.key)
    if saved is None or log.lost is not None or saved.topic_id != log.topic_id:
        return None
    bases = {base for base, _ in log.sealed}
    segments = tuple([each for each in saved.segments if each[0] in bases])
    start = saved.start if saved.start == NO_START else max(saved.start, log.planned_start)
    lower = saved._replace(start=start, segments=segments)
    return None if lower == saved else lower


def _lower_or_remove(directory: LogDirectory, lower: Mapping[TopicPartition, RecordedEnds]) -> None:
    """On a full disk the record goes as a whole: deletions make room there, and a kill would make them a loss."""
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
