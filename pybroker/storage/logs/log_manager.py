"""`LogManager`: all open logs of this broker over its log dirs: opening, closing, deleting, checkpoints, strays.

State belongs to the asyncio loop; the disk is touched on `executor`'s threads. Failures: a log that cannot be opened
(`NativeError`, `StorageError`), a partition that lies in two log dirs (`StorageError` at start). A log dir that fails
is left alone from then on: `failures` says which and tells others.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.native.broker import NativeBroker
from pybroker.native.errors import CloseUnfinished, NativeError
from pybroker.native.metrics import read_stats
from pybroker.native.partition import NativePartition, PartitionState, set_below_reserve
from pybroker.native.refusal import NativeRefusal
from pybroker.protocol.errors import ErrorCode
from pybroker.storage.dirs.directory_removal import DirectoryRemoval
from pybroker.storage.dirs.full_disk import is_full
from pybroker.storage.dirs.interrupted_moves import deleted_partition, settle_moves
from pybroker.storage.dirs.log_directory import DELETED_SUFFIX, STRAY_SUFFIX, LogDirectory
from pybroker.storage.dirs.missing_logs import left_of, why_elsewhere
from pybroker.storage.dirs.strays import tell_kept
from pybroker.storage.errors import DirectoryOffline, OpeningStopped, StorageError
from pybroker.storage.files import partition_metadata
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.gap_checkpoint import UNKNOWN
from pybroker.storage.files.log_ends import RecordedEnds
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs import recovery_report
from pybroker.storage.logs.closing import close_in_order
from pybroker.storage.logs.log_checkpoints import LogCheckpoints
from pybroker.storage.logs.log_config import partition_config
from pybroker.storage.logs.log_failures import Consequence, LogFailures, consequence
from pybroker.storage.logs.log_loss import LostRecords
from pybroker.storage.logs.log_slots import LogSlots
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.storage.logs.segment_purge import SegmentPurge
from pybroker.storage.rings import tail_rings
from pybroker.turns import pause

logger = logging.getLogger(__name__)

_MIN_THREADS = 4
_PROGRESS_INTERVAL_S = 2.0


class Clock(Protocol):
    """Wall and monotonic time in ms."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class LogManager(LogCheckpoints):
    """Life: `load`, `open` and `delete` as metadata says, `close` at the end. `logs` has every open log."""

    def __init__(
        self,
        broker: NativeBroker,
        directories: Sequence[LogDirectory],
        config: BrokerConfig,
        clock: Clock,
        failures: LogFailures | None = None,
    ) -> None:
        """`failures` knows of log dirs that are not among `directories` because they could not be used at the start."""
        assert directories
        thread_count = config.get_int("num.recovery.threads.per.data.dir") * len(directories)
        executor = ThreadPoolExecutor(max(_MIN_THREADS, thread_count), thread_name_prefix="log")
        super().__init__(directories, executor, failures or LogFailures())
        self.config = config
        self.clock = clock
        self.slots = LogSlots(self.logs)
        self._broker = broker
        self._by_tag: dict[int, PartitionLog] = {}
        self._tags = itertools.count(1)
        self._log_counts = dict.fromkeys(self.directories, 0)
        self.purge = SegmentPurge(self.executor, clock.wall_ms, self.failures.report)
        #: Bytes that recovery has read since the start.
        self.scanned_bytes = 0
        #: The largest id of the producers found in the logs as they were opened; -1: none.
        self.largest_producer_id = -1
        self._removal = DirectoryRemoval(self.executor, broker.drain_file, self._before_removal)
        #: Logs that have been open since the start: no stop in order says anything of them any more.
        self._used: set[TopicPartition] = set()
        #: After `close`: the partitions whose newest records may be lost, though they were acknowledged.
        self.at_risk: list[TopicPartition] = []
        #: Where a log was given up that could not be brought out of its tail ring.
        self._abandoned: set[LogDirectory] = set()
        #: Where the logs lie that could not be opened.
        self._unopened: dict[TopicPartition, LogDirectory] = {}
        #: Renamed to be deleted before the start, and of partitions that lie nowhere.
        self._left_behind: defaultdict[TopicPartition, list[tuple[LogDirectory, Path]]] = defaultdict(list)
        #: Partitions missing from their log dirs.
        self._lost: set[TopicPartition] = set()
        #: Moves that the last stop interrupted, and where to.
        self.interrupted_moves: dict[TopicPartition, LogDirectory] = {}
        #: A compacted log was opened, and its gap offset may not be on the disk.
        self.gap_noted = asyncio.Event()
        self._stopping = False

    # ---- start -----------------------------------------------------------------------------------------------------

    @property
    def written_bytes(self) -> int:
        """Into all logs since the start."""
        return read_stats(self._broker).written_bytes

    async def load(self) -> None:
        """Read what lies in the log dirs; one that cannot be read fails. StorageError for a partition that lies in two
        of them."""
        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(self.executor, each.load) for each in self.directories]
        # All of them end before a failure is told: `close` has to know what they did.
        await asyncio.wait(jobs)
        for directory, job in zip(self.directories, jobs, strict=True):
            try:
                job.result()
            except OSError as error:
                self.failures.fail(directory, f"it cannot be read: {error}")
        if not self.failures.offline:
            for place in {each.ring_directory for each in self.directories if each.ring_directory is not None}:
                await loop.run_in_executor(self.executor, tail_rings.remove_directory, place)
        settled = await loop.run_in_executor(self.executor, settle_moves, self.live)
        self.interrupted_moves = settled.wanted
        for directory, failure in settled.failed:
            self.failures.report_directory(directory, "finishing a move", failure)
        places: dict[TopicPartition, Path] = {}
        for directory in self.live:
            for key, path in directory.partitions.items():
                if key in places:
                    raise StorageError(
                        f"{path} and {places[key]} hold the same partition: keep the one that is up to date and move "
                        "the other out of log.dirs"
                    )
                places[key] = path
                for other in self.live:
                    if other is not directory:
                        other.ends.forget(key)  # it has moved
            if directory.partitions and not directory.clean:
                logger.warning(
                    "%s was not closed in order: its logs are checked from their recovery points", directory.path
                )
        for directory in self.live:
            for path in directory.deleted:
                # A move renames it before the copy in the other log dir becomes the log. If that dir is not in service,
                # this name tells its next start that the copy is the log, and this may be all there is.
                deleted = deleted_partition(path.name)
                is_placed = deleted in places
                if (self.failures.offline and not is_placed) or path.name in settled.needed:
                    logger.warning("%s stays as long as a log dir is out of service: it may have been on a move", path)
                elif deleted is None or is_placed:
                    self.remove_later(path)
                else:
                    # So it is if that dir is in service and empty. Whether anybody misses the log, metadata will say.
                    self._left_behind[deleted].append((directory, path))

    async def relocate(self, log: PartitionLog, directory: LogDirectory, path: Path) -> None:
        """A log lies elsewhere now."""
        source = log.directory
        gap_offset = source.gap_checkpoint.get(log.key)
        if gap_offset != UNKNOWN:
            directory.gap_checkpoint.note(log.key, gap_offset)
        source.forget(log.key)
        self._log_counts[log.directory] -= 1
        self._log_counts[directory] += 1
        log.directory, log.path = directory, path
        self.configure(log, log.config)
        set_below_reserve([log.native], directory.space.is_low)
        directory.partitions[log.key] = path
        directory.topic_ids.note(log.key, log.topic_id)
        clean_offset = source.cleaner_checkpoint.get(log.key)
        if clean_offset is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self.executor, directory.cleaner_checkpoint.put, log.key, clean_offset)
            await loop.run_in_executor(self.executor, source.cleaner_checkpoint.forget, log.key)
        await self.write_checkpoints()

    async def report_progress(self, total_count: int) -> None:
        """Say every two seconds how far opening `total_count` logs is. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_PROGRESS_INTERVAL_S)
            logger.info("%d of %d logs are open, %d MiB checked", len(self.logs), total_count, self.scanned_bytes >> 20)

    async def note_applied(self, applied: AppliedMetadata) -> None:
        """Metadata up to there are about to take effect: the dirs say so first."""
        loop = asyncio.get_running_loop()
        for directory in self.live:
            try:
                await loop.run_in_executor(self.executor, directory.note_applied, applied)
            except OSError as error:
                self.failures.report_directory(directory, "noting the metadata that were applied", error)

    async def set_strays_aside(self, is_ours: Callable[[TopicPartition], bool], image: AppliedMetadata) -> None:
        """Rename directories of partitions that are not `is_ours` and that nobody has tried to open; they stay on disk
        for people to look at. `image` is how far the metadata go that say so: where they do not reach what was applied
        before, nothing is renamed. Those that were renamed to be deleted go, unless somebody misses them. No log may be
        opened meanwhile."""
        loop = asyncio.get_running_loop()
        for directory in self.live:
            if not directory.may_set_aside(image):
                tell_kept(directory, [key for key in directory.partitions if not is_ours(key)], image)
                continue
            for key in list(directory.partitions):
                if self._stopping:
                    return
                path = directory.partitions.get(key)
                if path is None or key in self.logs or key in self._unopened or is_ours(key):
                    continue
                try:
                    renamed = await loop.run_in_executor(self.executor, directory.set_aside, key, path, STRAY_SUFFIX)
                except OSError as error:
                    self.failures.report_directory(directory, f"renaming {path}", error)
                    continue
                directory.forget(key)
                logger.warning("%s is of no topic in the metadata; it was renamed to %s", path, renamed.name)
            for key in directory.ends.closed():
                if not is_ours(key) and key not in self.logs and key not in self._unopened:
                    directory.ends.forget(key)
        for key in [key for key in self._left_behind if key not in self._lost]:
            for _, path in self._left_behind.pop(key):
                self.remove_later(path)

    def stop_opening(self) -> None:
        """Let `open` raise OpeningStopped from now on, also for logs whose turn has not come yet."""
        self._stopping = True

    # ---- open and delete -------------------------------------------------------------------------------------------

    async def open(
        self,
        key: TopicPartition,
        topic_id: bytes,
        directory_id: bytes,
        leader_epoch: int,
        config: TopicConfig,
        *,
        is_new: bool = True,
        is_replicated: bool = False,
    ) -> PartitionLog:
        """Open a partition's log, made when missing: where it lies, else in the dir `directory_id`, else where there
        are fewest. One that is not new and lies nowhere is not made while a log dir is out of service: it may lie
        there. In a replicated log only the records that the last checkpoint calls committed are known to be, and one
        that has lost records is opened all the same. `leader_epoch` is that in which the partition is about to be led
        here, -1 for none. StorageError, LostRecords among them, NativeError or OSError when that is impossible."""
        assert key not in self.logs
        with self.slots.opening():
            directory, path, existed = await self._place(key, topic_id, directory_id, is_new, is_replicated)
            if not existed:
                await self._forget_gone(key)
            self._log_counts[directory] += 1
            tag = next(self._tags)
            recorded = self.ends.recorded(directory, key, topic_id) if not is_new or existed else None
            try:
                opening = partial(self._open, key, topic_id, leader_epoch, directory, path, config, tag, existed)
                native, state, recorded = await asyncio.get_running_loop().run_in_executor(
                    self.executor, opening, is_replicated, recorded
                )
            except OpeningStopped:
                self._log_counts[directory] -= 1
                raise
            except BaseException as error:
                self._log_counts[directory] -= 1
                self._unopened[key] = directory
                if isinstance(error, NativeError | OSError) and consequence(error) is Consequence.DIRECTORY:
                    self.failures.fail(directory, f"opening {path} failed: {error}")
                if isinstance(error, LostRecords):
                    self.ends.losses.report(error.loss, is_replicated=False)
                raise
        self._unopened.pop(key, None)
        log = PartitionLog(key, topic_id, tag, directory, path, config, native, self.executor)
        log.marked_bytes = -native.recovery.scanned_bytes
        set_below_reserve([native], directory.space.is_low)
        self.ends.begin(log, recorded, state)
        directory.partitions[key] = path
        directory.topic_ids.note(key, topic_id)
        directory.gap_checkpoint.note(key, native.recovery.gap_offset)
        if config.compact:
            self.gap_noted.set()
        self.logs[key] = self._by_tag[tag] = log
        self.scanned_bytes += native.recovery.scanned_bytes
        self.largest_producer_id = max(self.largest_producer_id, native.recovery.largest_producer_id)
        if existed:
            durable_end = 0 if recorded is not None else directory.recovery_point(key)
            recovery_report.tell(path, native.recovery, state.log_end_offset, durable_end)
        self._used.add(key)
        return log

    def _is_clean(self, key: TopicPartition, directory: LogDirectory) -> bool:
        """Whether a log is as a stop in order has left it."""
        return directory.clean and key not in self._used

    async def _place(
        self, key: TopicPartition, topic_id: bytes, directory_id: bytes, is_new: bool, is_replicated: bool
    ) -> tuple[LogDirectory, Path, bool]:
        """(log dir, directory of the partition, whether it is there already)."""
        loop = asyncio.get_running_loop()
        for directory in self.directories:
            path = directory.partitions.get(key)
            if path is None:
                continue
            if directory.failure is not None:
                raise DirectoryOffline(f"{path} lies in a log dir that is out of service: {directory.failure}")
            found_id = await loop.run_in_executor(self.executor, directory.topic_id, key, path, topic_id)
            if found_id is None or found_id == topic_id:
                return directory, path, True
            renamed = await loop.run_in_executor(self.executor, directory.set_aside, key, path, STRAY_SUFFIX)
            directory.forget(key)
            logger.warning("%s is of an earlier topic of that name; it was renamed to %s", path, renamed.name)
        if not is_new:
            left = await loop.run_in_executor(self.executor, left_of, self._left_behind.get(key, ()), topic_id)
            self._check_lost(key, directory_id, left)
            gone = self.ends.find_gone(self.live, key, topic_id, is_deleted=left is not None)
            if gone is not None:
                if not is_replicated:
                    raise self.ends.lost(gone[1])
                return gone[0], gone[1].path, False
        chosen = self._choose(directory_id)
        return chosen, chosen.path / f"{key[0]}-{key[1]}", False

    def _check_lost(self, key: TopicPartition, directory_id: bytes, left: tuple[LogDirectory, Path] | None) -> None:
        """DirectoryOffline for a log that lies nowhere and may lie in a dir that is not here. An empty log in its place
        would be served, and be in the way when that dir comes back. Then the rest in `left` stays."""
        why = why_elsewhere(key, directory_id, left, self.directories, self.failures.offline)
        if why is not None:
            self._lost.add(key)
            raise DirectoryOffline(why)

    def _choose(self, directory_id: bytes) -> LogDirectory:
        """The log dir for a new partition. DirectoryOffline when there is none."""
        live = self.live
        assigned = next((each for each in live if each.directory_id == directory_id), None)
        if assigned is not None:
            return assigned
        if not live:
            raise DirectoryOffline("all log dirs are out of service")
        cordoned = self.config.get_list("cordoned.log.dirs")
        usable = [each for each in live if str(each.path) not in cordoned and "*" not in cordoned]
        return min(usable or live, key=self._log_counts.__getitem__)

    def refuse(self, key: TopicPartition, topic_id: bytes) -> NativeRefusal:
        """Let the data plane answer KAFKA_STORAGE_ERROR for a partition, whether it is open or not. NativeError."""
        return NativeRefusal(self._broker, key[0], topic_id, key[1], ErrorCode.KAFKA_STORAGE_ERROR)

    async def drop(self, log: PartitionLog) -> None:
        """Close a log that cannot be used any more, as it is."""
        if self.logs.get(log.key) is not log:
            return
        self._forget(log)
        self._unopened[log.key] = log.directory
        state = log.native.state
        log.directory.remember(log.key, state)
        log.directory.ends.put(log.key, self.ends.of_failed(log, state))
        try:
            await log.close(error=ErrorCode.KAFKA_STORAGE_ERROR, clean=False)
        except NativeError as error:
            logger.warning("%s: closing it failed: %s", log, error)
            if not isinstance(error, CloseUnfinished):
                self._abandoned.add(log.directory)

    def _open(
        self,
        key: TopicPartition,
        topic_id: bytes,
        leader_epoch: int,
        directory: LogDirectory,
        path: Path,
        config: TopicConfig,
        tag: int,
        existed: bool,
        is_replicated: bool,
        recorded: RecordedEnds | None,
    ) -> tuple[NativePartition, PartitionState, RecordedEnds | None]:
        """The log, its state, and what counts of the record."""
        if self._stopping:
            raise OpeningStopped(f"{path} was not opened: the broker stops")
        if recorded is not None:
            recorded = self.ends.without_deleted(directory, key, path, recorded)
        if self.ends.check_before(key, path, recorded, is_replicated) and existed:
            # The rest of it stays beside the log, which the other replicas bring anew.
            directory.set_aside(key, path, STRAY_SUFFIX)
            existed = False
        native = NativePartition(
            self._broker,
            key[0],
            topic_id,
            key[1],
            str(path),
            partition_config(key, config, self.config, directory.space.reserve_bytes),
            leader_epoch=leader_epoch,
            clean=self._is_clean(key, directory),
            # The checkpoints may still know an earlier topic of that name.
            recovery_point=directory.recovery_point(key) if existed else 0,
            log_start_offset=directory.log_start_offset(key) if existed else -1,
            high_watermark=directory.high_watermark(key) if is_replicated and existed else -1,
            gap_offset=directory.gap_checkpoint.get(key) if existed else UNKNOWN,
            tag=tag,
        )
        state = native.state
        directory.cleaner_checkpoint.check(key, state.log_end_offset)
        try:
            self.ends.check_after(key, path, recorded, state, is_replicated)
        except LostRecords:
            native.close(clean=False)
            raise
        return native, state, recorded

    async def delete(self, log: PartitionLog) -> None:
        """Close the log of a deleted topic, rename its directory, and remove that after file.delete.delay.ms."""
        self._forget(log)
        try:
            await log.close(error=0, clean=False)
        except NativeError as error:
            logger.warning("%s: closing it for deletion failed: %s", log, error)
        await pause()
        await self._delete_files(log.directory, log.key, log.path, log.config.get_int("file.delete.delay.ms"))

    async def delete_unopened(self, key: TopicPartition, topic_id: bytes) -> None:
        """The same for a log of that topic that could not be opened, where its log dir is in service. Nobody would miss
        it, and it may be the one that fills the disk. OSError."""
        directory = self._unopened.get(key)
        path = None if directory is None else directory.partitions.get(key)
        if directory is None or path is None or directory.failure is not None:
            return
        try:
            loop = asyncio.get_running_loop()
            found_id = await loop.run_in_executor(self.executor, partition_metadata.read, path)
        except StorageError as error:
            logger.warning("%s is left alone, though its topic was deleted: %s", path, error)
            return
        if found_id == topic_id:
            await self._delete_files(directory, key, path, self.config.get_int("log.segment.delete.delay.ms"))
            del self._unopened[key]

    async def _delete_files(self, directory: LogDirectory, key: TopicPartition, path: Path, delay_ms: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            renamed = await loop.run_in_executor(self.executor, directory.set_aside, key, path, DELETED_SUFFIX)
        except OSError as error:
            if not is_full(error):
                raise
            # Another name may take a block of the directory; removing files takes none.
            await self.remove(path)
            await loop.run_in_executor(self.executor, directory.cleaner_checkpoint.forget, key)
            logger.info("%s-%d deleted with its files, as there is no room to rename %s", *key, path)
        else:
            logger.info("%s-%d deleted; its files in %s go in %d ms", *key, renamed, delay_ms)
            self.remove_later(renamed, delay_ms)
        directory.forget(key)

    def _forget(self, log: PartitionLog) -> None:
        del self.logs[log.key], self._by_tag[log.tag]
        self._log_counts[log.directory] -= 1

    def remove_later(self, path: Path, delay_ms: int | None = None) -> None:
        """Remove a directory that was set aside, after a while."""
        self._removal.later(path, self.config.get_int("log.segment.delete.delay.ms") if delay_ms is None else delay_ms)

    async def _before_removal(self, path: Path) -> None:
        """Before the sign that a log was deleted goes."""
        key = deleted_partition(path.name)
        if key is not None:
            await self._forget_gone(key)

    async def remove(self, path: Path) -> None:
        """Remove a directory that was set aside, now; what is left when the broker stops goes at the next start."""
        await self._removal.now(path)

    def configure(self, log: PartitionLog, config: TopicConfig) -> None:
        """Let a log follow its topic's new configuration."""
        log.configure(config)
        if log.interrupt is not None and not config.compact:
            # Retention has the log from now on, and would take segments from under a pass of the cleaner.
            log.interrupt()
        log.native.configure(partition_config(log.key, config, self.config, log.directory.space.reserve_bytes))

    def by_tag(self, tag: int) -> PartitionLog | None:
        """The log that an OFFLINE event names; None when it is gone."""
        return self._by_tag.get(tag)

    # ---- checkpoints and the end -----------------------------------------------------------------------------------

    async def close(self, broker_epoch: int, resigned_error: int) -> None:
        """Sync and close every log, write the checkpoints and, where all went well, the clean-shutdown mark.

        A dir gets its mark when every log in it was closed in order, now or, if it was not opened since, the last time.
        Then the next start trusts the files there. Clients that still ask are told `resigned_error`. `at_risk` names
        those logs afterwards whose newest records may not be in their files.
        """
        self._removal.cancel()
        self.purge.cancel()
        logs = list(self.logs.values())
        before = self.states(logs)
        in_order = {log.key: self.ends.of_closed(log, before[log.key]) for log in logs if log.key in before}
        ends = {log.key: self.ends.of(log, before[log.key]) for log in logs if log.key in before}
        failed: set[LogDirectory] = set()
        # Closing syncs everything, so the recovery points are the log ends; the logs are gone by then.
        synced = {key: state._replace(recovery_point=state.log_end_offset) for key, state in before.items()}
        placed = {log.key: (log.directory, synced[log.key]) for log in logs if log.key in synced}
        unfinished: defaultdict[LogDirectory, list[NativeError]] = defaultdict(list)
        for log, error in (await close_in_order(self._broker, self.executor, logs, resigned_error)).items():
            failed.add(log.directory)
            if isinstance(error, CloseUnfinished):
                unfinished[log.directory].append(error)
            else:
                logger.error("%s could not be closed in order: %s", log, error)
                self.at_risk.append(log.key)
                self._abandoned.add(log.directory)
            # Only what was known to be synced before.
            if log.key in before:
                placed[log.key] = (log.directory, before[log.key])
                in_order[log.key] = ends[log.key]
        for directory, errors in unfinished.items():
            logger.warning(
                "%s: %d logs have all their records, but not all that is derived from them. The first failure: %s",
                directory.path,
                len(errors),
                errors[0],
            )
        failed.update(self._unopened.values())
        failed.update(each for each in self.directories if not each.is_closed(placed))
        self.logs.clear()
        self._by_tag.clear()
        await self._finish(placed, in_order, failed, broker_epoch)
        self.executor.shutdown()

    async def _finish(
        self,
        placed: dict[TopicPartition, tuple[LogDirectory, PartitionState]],
        ends: dict[TopicPartition, RecordedEnds],
        failed: set[LogDirectory],
        broker_epoch: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        async with self._checkpointing:
            await self._write_checkpoints(placed, ends)
        for directory in self.live:
            if directory in failed or directory in self._unwritten:
                logger.warning("%s is not marked as closed in order, so the next start checks its logs", directory.path)
                if directory not in self._abandoned:
                    await self._forget_rings(directory)
                continue
            epoch = broker_epoch if broker_epoch >= 0 else directory.previous_broker_epoch
            try:
                await loop.run_in_executor(self.executor, directory.mark_clean, epoch)
            except OSError as error:
                self.failures.report_directory(directory, "marking it as closed in order", error)

    async def _forget_rings(self, directory: LogDirectory) -> None:
        """The next start must not miss rings that nothing is in."""
        forget = partial(tail_rings.forget_empty, directory.path, directory.directory_id)
        try:
            await asyncio.get_running_loop().run_in_executor(self.executor, forget)
        except OSError as error:
            self.failures.report_directory(directory, "noting that it has no tail rings", error)
        except StorageError as error:
            logger.error("%s", error)
