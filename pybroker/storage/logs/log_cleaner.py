"""`LogCleaner`: has compacted logs cleaned, the most urgent first, and their old segments deleted.

Decisions are made on the asyncio loop, by rounds: examine all compacted logs, clean those that are due on the round's
own threads, begin anew. A round that finds nothing to do waits log.cleaner.backoff.ms. The pass itself is C's, and what
it may read and write per second is shared by all. Settings count from the next pass on, the rate at once.

A log that cannot be cleaned (a damaged batch) is named once and left alone until the broker is started again. A log
that only has no room, or was overtaken by retention, is tried again. Closing a log ends its pass early.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter

from pybroker.native.errors import NativeError
from pybroker.native.partition import CleanOptions, CleanProgress, CleanResult, PartitionState
from pybroker.storage.logs.cleaner_policy import CompactionPolicy, LogToClean, dirty_segments, examine, first_dirty
from pybroker.storage.logs.log_config import CleanerConfig, clean_options, compaction_policy
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.partition_log import PartitionLog, completed
from pybroker.values import Value

logger = logging.getLogger(__name__)

_LOGS_PER_TURN = 64
_TICK_S = 0.25
_LEAST_BACKOFF_S = 0.01
_CANCEL_AGAIN_S = 0.05
_PROGRESS_INTERVAL_S = 30.0
_UNBOUNDED_MS = 2**63 - 1
_MIB = 1 << 20
#: The nice value of the threads that clean.
_NICE = 10
#: Nothing is wrong: it is tried again.
_OVERTAKEN = frozenset({errno.EAGAIN, errno.EBUSY, errno.ECANCELED})
#: Nothing is wrong with the disk, but with the log; so it is when the code is Kafka's.
_UNCLEANABLE = frozenset({errno.EFBIG, errno.E2BIG, errno.EINVAL, errno.ENOTSUP})


class DirtyLog(Value):
    """A compacted log as the last examination found it."""

    partition: str
    clean_bytes: int
    dirty_bytes: int
    dirty_ratio: float
    overdue_ms: int
    is_due: bool


class RunningClean(Value):
    """A pass under way."""

    partition: str
    plan: LogToClean
    progress: CleanProgress
    elapsed_ms: int


class CleanerStatistics(Value):
    """The present work of the cleaner. `dirtiest`: compacted logs, the most urgent first; `uncleanable`: partition →
    why."""

    running: list[RunningClean]
    dirtiest: list[DirtyLog]
    uncleanable: dict[str, str]
    cleaned_count: int
    read_bytes: int
    written_bytes: int
    last_round_ms: int


class _Candidate(Value):
    log: PartitionLog
    plan: LogToClean
    policy: CompactionPolicy

    @property
    def is_due(self) -> bool:
        return self.plan.is_due(self.policy)

    @property
    def rank(self) -> tuple[bool, float]:
        return self.plan.rank


class _Pass:
    """One pass: a call to run in a thread, which can be ended early."""

    def __init__(self, log: PartitionLog, plan: LogToClean, options: CleanOptions, started_ms: int) -> None:
        self.log = log
        self.plan = plan
        self.started_ms = started_ms
        self.reported_ms = started_ms
        self._options = options
        #: The thread has come back.
        self.ended = asyncio.Event()
        self._cancelled = False

    def __call__(self) -> CleanResult:
        if self._cancelled:
            raise NativeError(-errno.ECANCELED)
        self._account_for_gaps()
        result = self.log.native.clean(self._options)
        if result.end_offset > self.plan.first_dirty_offset:
            checkpoint = self.log.directory.cleaner_checkpoint
            checkpoint.put(self.log.key, result.end_offset, lambda: self.log.native.state.cut_offset)
        return result

    def _account_for_gaps(self) -> None:
        """A pass that a power cut interrupts must not look as if its records were lost. Nor must what the power cut
        takes look as if it were cleaned: so what there is below is synced first."""
        checkpoint = self.log.directory.gap_checkpoint
        if self.log.native.state.durable_offset < self.plan.upper_offset:
            self.log.native.sync()
        checkpoint.note(self.log.key, self.plan.upper_offset)
        try:
            checkpoint.save()
        except OSError as error:
            code = error.errno or errno.EIO
            raise NativeError(-code, f"the gaps that cleaning makes cannot be accounted for: {error}") from error

    def cancel(self) -> None:
        """On the loop. Said again until it is heard: the thread may be about to begin."""
        self._cancelled = True
        if not self.ended.is_set():
            self.log.native.cancel_clean()
            asyncio.get_running_loop().call_later(_CANCEL_AGAIN_S, self.cancel)


def _max_record_bytes(log: PartitionLog) -> int:
    return log.config.get_int("max.decompressed.message.bytes")


def _let_others_first() -> None:
    """A pass computes for minutes; the threads that clients wait for get the CPU when they want it."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class LogCleaner:
    """`start` once the logs are open, `stop` before they are closed. `statistics` at any time."""

    def __init__(
        self,
        manager: LogManager,
        limit_rate: Callable[[int], None],
        retain: Callable[[list[PartitionLog]], Awaitable[None]],
    ) -> None:
        """`limit_rate` sets the bytes per second that all passes together may move (0: any); `retain` deletes what
        retention lets go in some logs."""
        self._manager = manager
        self._clock = manager.clock
        self._limit_rate = limit_rate
        self._retain = retain
        self._rate = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._running: dict[PartitionLog, _Pass] = {}
        self._candidates: list[_Candidate] = []
        #: Log → (why it cannot be cleaned, its max.decompressed.message.bytes then).
        self._uncleanable: dict[PartitionLog, tuple[str, int]] = {}
        #: Log → (first dirty offset, base offset of the active segment, smallest first timestamp between them).
        self._first_timestamps: dict[PartitionLog, tuple[int, int, int]] = {}
        self._totals = [0, 0, 0]
        self._last_round_ms = 0

    def start(self) -> None:
        """Begin, unless log.cleaner.enable is false; needs the running loop."""
        if not self._manager.config.get_bool("log.cleaner.enable"):
            logger.warning("log.cleaner.enable is false: compacted topics keep all their records")
            return
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._clean_regularly(), name="log cleaner"),
            loop.create_task(self._watch(), name="log cleaner watch"),
        ]

    async def stop(self) -> None:
        """End the passes under way and return when nothing of it is left."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        for each in list(self._running.values()):
            each.cancel()
            await each.ended.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def statistics(self) -> CleanerStatistics:
        """See `CleanerStatistics`."""
        now_ms = self._clock.monotonic_ms()
        cleaned_count, read_bytes, written_bytes = self._totals
        return CleanerStatistics(
            [
                RunningClean(str(each.log), each.plan, each.log.native.clean_progress, now_ms - each.started_ms)
                for each in self._running.values()
                if not each.log.closing
            ],
            [
                DirtyLog(
                    str(each.log),
                    each.plan.clean_bytes,
                    each.plan.dirty_bytes,
                    each.plan.dirty_ratio,
                    each.plan.overdue_ms,
                    each.is_due,
                )
                for each in self._candidates
            ],
            {str(log): reason for log, (reason, _) in self._uncleanable.items() if not log.closing},
            cleaned_count,
            read_bytes,
            written_bytes,
            self._last_round_ms,
        )

    # ---- rounds ----------------------------------------------------------------------------------------------------

    async def _clean_regularly(self) -> None:
        # A task group that is cancelled in the moment in which one of its tasks fails tells of the failure only.
        while not self._stopping:
            has_progressed = False
            try:
                has_progressed = await self.run_round()
            except Exception:
                logger.exception("cleaning logs failed; it is tried again after log.cleaner.backoff.ms")
            if not has_progressed and not self._stopping:
                await self._back_off()

    async def _back_off(self) -> None:
        """Wait log.cleaner.backoff.ms, as it is configured by then."""
        started_ms = self._clock.monotonic_ms()
        while True:
            left_ms = started_ms + self._manager.config.get_int("log.cleaner.backoff.ms") - self._clock.monotonic_ms()
            await asyncio.sleep(max(_LEAST_BACKOFF_S, min(left_ms / 1000, _TICK_S)))
            if left_ms <= _TICK_S * 1000:
                return

    async def run_round(self) -> bool:
        """Examine all compacted logs, clean those that are due, delete what their retention lets go. Whether any of
        them has become cleaner."""
        config = CleanerConfig.of(self._manager.config)
        self._apply_rate(config.bytes_per_second)
        self._forget_old()
        self._candidates = sorted(await self._examine_all(), key=attrgetter("rank"), reverse=True)
        self._last_round_ms = self._clock.wall_ms()
        due = deque(each.log for each in self._candidates if each.is_due)
        has_progressed = False
        if due and config.thread_count > 0:
            executor = ThreadPoolExecutor(
                min(config.thread_count, len(due)), thread_name_prefix="cleaner", initializer=_let_others_first
            )
            try:
                async with asyncio.TaskGroup() as group:
                    thread_count = min(config.thread_count, len(due))
                    workers = [group.create_task(self._work(due, executor, config)) for _ in range(thread_count)]
                has_progressed = any(worker.result() for worker in workers)
            finally:
                executor.shutdown(wait=False)
        # Those without `delete` as well: DeleteRecords moves the start of any log.
        await self._retain(self._compacted())
        return has_progressed

    def _compacted(self) -> list[PartitionLog]:
        """The compacted logs that no pass is at."""
        logs = self._manager.logs.values()
        usable = [log for log in logs if not log.closing and log.directory.failure is None]
        return [log for log in usable if log.config.compact and log not in self._running and not log.is_switching]

    def _forget_old(self) -> None:
        """Forget what was known of logs that are closed, or whose records may be longer by now."""
        self._uncleanable = {
            log: (reason, max_record_bytes)
            for log, (reason, max_record_bytes) in self._uncleanable.items()
            if not log.closing and _max_record_bytes(log) == max_record_bytes
        }
        self._first_timestamps = {log: known for log, known in self._first_timestamps.items() if not log.closing}

    def _apply_rate(self, bytes_per_second: int) -> None:
        if bytes_per_second != self._rate:
            self._rate = bytes_per_second
            self._limit_rate(bytes_per_second)

    async def _examine_all(self) -> list[_Candidate]:
        candidates = []
        logs = [log for log in self._compacted() if log not in self._uncleanable]
        for start in range(0, len(logs), _LOGS_PER_TURN):
            some = [log for log in logs[start : start + _LOGS_PER_TURN] if not log.closing]
            states = self._manager.states(some)
            for log in some:
                if log.closing:
                    continue
                candidate = await self._examine(log, states[log.key])
                if candidate is not None:
                    candidates.append(candidate)
            await asyncio.sleep(0)
        return candidates

    async def _examine(self, log: PartitionLog, state: PartitionState) -> _Candidate | None:
        """The work to do in a log; None when it cannot be told now."""
        checkpoint = log.directory.cleaner_checkpoint
        start = first_dirty(state, checkpoint.get(log.key), log.config.delete)
        if start.reset:
            if start.reset_reason:
                logger.warning("%s: %s; it is cleaned from its beginning", log, start.reset_reason)
            await log.run(checkpoint.put, log.key, start.offset)
            if log.closing:
                return None
        policy = compaction_policy(log.config)
        segments = log.native.segments()
        first_timestamp_ms = -1
        if policy.max_lag_ms != _UNBOUNDED_MS and dirty_segments(segments, start.offset):
            try:
                first_timestamp_ms = await self._first_timestamp(log, start.offset, segments[-1].base_offset)
            except NativeError as error:
                self._note_failure(log, error)
                return None
        now_ms = self._clock.wall_ms()
        plan = examine(segments, state, start.offset, policy, now_ms, first_timestamp_ms)
        return _Candidate(log, plan, policy)

    async def _first_timestamp(self, log: PartitionLog, from_offset: int, upper_offset: int) -> int:
        """Read once for as long as no segment is rolled or cleaned."""
        known = self._first_timestamps.get(log)
        if known is None or known[:2] != (from_offset, upper_offset):
            timestamp_ms = await log.run(log.native.first_timestamp, from_offset, upper_offset)
            known = self._first_timestamps[log] = (from_offset, upper_offset, timestamp_ms)
        return known[2]

    # ---- passes ----------------------------------------------------------------------------------------------------

    async def _work(self, due: deque[PartitionLog], executor: ThreadPoolExecutor, config: CleanerConfig) -> bool:
        """Clean one log after the other; whether any of them has become cleaner."""
        has_progressed = False
        while due:
            log = due.popleft()
            if log.closing:
                continue
            # Since the round began it may have been configured, cut or cleaned enough.
            candidate = await self._examine(log, log.native.state)
            if candidate is not None and candidate.is_due and not log.closing and not log.is_switching:
                has_progressed |= await self._clean(candidate, executor, config)
        return has_progressed

    async def _clean(self, candidate: _Candidate, executor: ThreadPoolExecutor, config: CleanerConfig) -> bool:
        log, plan = candidate.log, candidate.plan
        options = clean_options(plan, log.config, config, self._clock.wall_ms())
        work = _Pass(log, plan, options, self._clock.monotonic_ms())
        self._running[log] = work
        log.hold()
        log.interrupt = work.cancel

        def ended() -> None:
            work.ended.set()
            log.interrupt = None
            del self._running[log]
            log.release()

        try:
            await self._manager.ends.before_cleaning(log)
        except BaseException:
            ended()
            raise
        try:
            result = await completed(asyncio.get_running_loop().run_in_executor(executor, work), ended)
        except NativeError as error:
            self._note_failure(log, error)
            return False
        self._totals = [
            self._totals[0] + 1,
            self._totals[1] + result.map_read_bytes + result.read_bytes,
            self._totals[2] + result.written_bytes,
        ]
        if not log.closing:
            self._manager.purge.due(log)
        _tell(log, plan, result)
        return result.end_offset > plan.first_dirty_offset

    def _note_failure(self, log: PartitionLog, error: NativeError) -> None:
        if error.errno in _OVERTAKEN:
            logger.debug("%s: cleaning it was given up for now: %s", log, error)
        elif error.errno is not None and error.errno not in _UNCLEANABLE:
            self._manager.failures.report(log, "cleaning", error)
        else:
            self._uncleanable[log] = (str(error), _max_record_bytes(log))
            logger.error(
                "%s cannot be cleaned and keeps growing until the broker is started again or the topic's "
                "max.decompressed.message.bytes is changed (`pybroker log check %s` says more): %s",
                log,
                log.path,
                error,
            )

    # ---- what people see -------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Let a changed rate count at once, and tell how far long passes are."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._apply_rate(CleanerConfig.of(self._manager.config).bytes_per_second)
            now_ms = self._clock.monotonic_ms()
            for work in self._running.values():
                if now_ms - work.reported_ms >= _PROGRESS_INTERVAL_S * 1000:
                    work.reported_ms = now_ms
                    progress = work.log.native.clean_progress
                    logger.info(
                        "%s is being cleaned up to offset %d: phase %d of 2, %d of %d MiB",
                        work.log,
                        work.plan.upper_offset,
                        progress.phase,
                        progress.done_bytes // _MIB,
                        progress.total_bytes // _MIB,
                    )


def _tell(log: PartitionLog, plan: LogToClean, result: CleanResult) -> None:
    logger.info(
        "%s cleaned from offset %d to %d in %.1f s: %d %% of %d KiB were dirty, %d of %d records kept, %d KiB less, "
        "%d segments instead of %d%s%s",
        log,
        plan.first_dirty_offset,
        result.end_offset,
        result.elapsed_ns / 1e9,
        plan.dirty_ratio * 100,
        (plan.clean_bytes + plan.dirty_bytes) >> 10,
        result.kept_records,
        result.read_records,
        result.removed_bytes >> 10,
        result.cleaned_segments,
        result.source_segments,
        f", {result.invalid_records} records without a key dropped" if result.invalid_records else "",
        "; the keys did not all fit log.cleaner.dedupe.buffer.size, so it goes on" if result.map_full else "",
    )
