"""The periodic work on open logs: retention, upkeep, checkpoints, marks, syncing by time.

Each kind of work is a task on the asyncio loop. Its blocking calls run on the log manager's threads: one job serves
many logs, but each sync is a job of its own. A failure concerns one log. It is logged, and the next round tries again.

A mark is an offset below which everything of a log is synced, so that recovery after an unclean stop begins there (see
csrc/log/recover/mark.h).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from operator import itemgetter

from pybroker.native.errors import NativeError
from pybroker.native.partition import NativePartition, PartitionState
from pybroker.storage.dirs.full_disk import is_full
from pybroker.storage.logs.log_config import retention_policy
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.storage.logs.retention import RetentionDecision, decide
from pybroker.storage.logs.segment_purge import Call, call_each

logger = logging.getLogger(__name__)

_MAX_UPKEEP_INTERVAL_MS = 30_000
_LOGS_PER_JOB = 64
_DEFAULT_FLUSH_MS = 1_000
_FLUSH_TICK_MS = (50, 1_000)
_UNBOUNDED = 2**63 - 1
#: Marks are set when all logs together have more bytes than this behind their last marks. Recovery reads these bytes
#: after an unclean stop, before the logs are served. Many logs with few bytes each can add up to much.
_UNMARKED_BYTES = 1 << 30
#: A mark costs some syncs. Recovery reads fewer bytes than this faster than a mark is set.
_WORTH_A_MARK_BYTES = 16 << 20
_MARK_TICK_S = 1.0
_WRITTEN_TICK_S = 0.5


class LogMaintenance:
    """Runs the periodic work. Call `start` when the logs are open, and `stop` before they are closed."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._clock = manager.clock
        self._tasks: list[asyncio.Task[None]] = []
        self._flushed_ms: dict[PartitionLog, int] = {}
        self._future: dict[PartitionLog, int] = {}
        #: When the broker has written this many bytes, it next looks for logs that need marks.
        self._next_look_bytes = 0

    def start(self) -> None:
        """Start the tasks. The asyncio loop must be running."""
        config = self._manager.config
        delay_ms = config.get_int("log.initial.task.delay.ms")
        checkpoint_ms = min(
            config.get_int("log.flush.offset.checkpoint.interval.ms"),
            config.get_int("log.flush.start.offset.checkpoint.interval.ms"),
        )
        # A recovery point helps only when the indexes and snapshots below it are in their files. So upkeep runs at
        # least as often as checkpoints are written.
        upkeep_ms = max(1, min(_MAX_UPKEEP_INTERVAL_MS, checkpoint_ms))
        retention_ms = config.get_int("log.retention.check.interval.ms")
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._regularly(self.apply_retention, delay_ms, retention_ms), name="retention"),
            loop.create_task(self._regularly(self._checkpoint, delay_ms, max(1, checkpoint_ms)), name="checkpoints"),
            loop.create_task(self._regularly(self.upkeep, upkeep_ms, upkeep_ms), name="upkeep"),
            loop.create_task(self._flush_regularly(), name="flush"),
            loop.create_task(self._mark_regularly(), name="marks"),
            loop.create_task(self._save_gap_offsets(), name="gap offsets"),
            loop.create_task(self._note_written_regularly(), name="written ends"),
        ]

    async def stop(self) -> None:
        """Cancel the tasks and return when they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _regularly(self, work: Callable[[], Awaitable[None]], delay_ms: int, interval_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1000)
        while True:
            try:
                await work()
            except Exception:
                logger.exception("regular work on the logs failed; it is tried again in %d ms", interval_ms)
            await asyncio.sleep(interval_ms / 1000)

    async def _checkpoint(self) -> None:
        await self._manager.write_checkpoints()

    async def _note_written_regularly(self) -> None:
        """Save how far each log is written, while logs are written to. The pause is 100 times as long as the last save,
        so this takes at most a hundredth of the time, however many logs there are."""
        noted_bytes, tick_s = -1, _WRITTEN_TICK_S
        while True:
            await asyncio.sleep(tick_s)
            written_bytes = self._manager.written_bytes
            if written_bytes == noted_bytes:
                continue
            started_s = time.monotonic()
            try:
                await self._manager.write_written()
            except Exception:
                logger.exception("noting how far logs are written failed; it is tried again")
            noted_bytes = written_bytes
            tick_s = max(_WRITTEN_TICK_S, 100 * (time.monotonic() - started_s))

    async def _save_gap_offsets(self) -> None:
        """Save gap offsets soon after a compacted log was opened. Recovery then tells gaps of a power cut from gaps of
        the cleaner even in a log's first minute, before the first checkpoint."""
        while True:
            await self._manager.gap_noted.wait()
            self._manager.gap_noted.clear()
            await self._manager.save_gap_offsets()

    # ---- retention -------------------------------------------------------------------------------------------------

    async def apply_retention(self) -> None:
        """Apply retention to every log that the cleaner does not handle."""
        has_cleaner = self._manager.config.get_bool("log.cleaner.enable")
        await self.retain(log for log in self._manager.logs.values() if not (has_cleaner and log.config.compact))

    async def retain(self, among: Iterable[PartitionLog]) -> None:
        """Delete the segments of the logs `among` that retention no longer keeps."""
        for logs in _chunks(among):
            states = self._manager.states(logs)
            decisions = [
                (log, self._decide(log, states[log.key]))
                for log in logs
                if not log.closing and states[log.key].size_bytes > 0
            ]
            due = [(log, each, each.delete_before) for log, each in decisions if each.delete_before is not None]
            await self._manager.ends.before_deletion((log, offset) for log, _, offset in due)
            for log, decision, _ in due:
                # A log may be closed while an earlier one is handled.
                if not log.closing:
                    await self._delete(log, decision)
            await asyncio.sleep(0)

    def _decide(self, log: PartitionLog, state: PartitionState) -> RetentionDecision:
        policy = retention_policy(log.config)
        segments = log.native.segments()
        self._manager.ends.note_segments(log, state, segments)
        decision = decide(segments, policy, self._clock.wall_ms(), state.high_watermark, state.log_start_offset)
        self._tell_of_future(log, decision.future_timestamp_ms)
        return decision

    async def _delete(self, log: PartitionLog, decision: RetentionDecision) -> None:
        try:
            deleted_count = await log.run(_delete, log.native, decision)
        except NativeError as error:
            self._manager.failures.report(log, "retention", error)
            return
        self._manager.purge.due(log)
        logger.info(
            "%s: %d segments deleted (%d by size, %d by age, %d below the log start offset); the log starts at %d",
            log,
            deleted_count,
            decision.size_count,
            decision.age_count,
            decision.start_offset_count,
            decision.delete_before,
        )

    def _tell_of_future(self, log: PartitionLog, timestamp_ms: int) -> None:
        """Warn once per segment about a record in the future, for example of a producer whose clock was wrong. The
        operator would not expect that retention keeps the segment for years."""
        if timestamp_ms < 0 or self._future.get(log) == timestamp_ms:
            return
        self._future = {each: known for each, known in self._future.items() if not each.closing}
        self._future[log] = timestamp_ms
        logger.warning(
            "%s: its oldest segment has a record %d s in the future, so retention.ms keeps that segment and all behind "
            "it; DeleteRecords gets rid of it, message.timestamp.after.max.ms refuses such records",
            log,
            (timestamp_ms - self._clock.wall_ms()) // 1000,
        )

    # ---- upkeep ----------------------------------------------------------------------------------------------------

    async def upkeep(self) -> None:
        """Write each log's buffered index entries, epochs and snapshots to their files, and unlink deleted segments.
        A log that has grown by `segment.bytes` since its last mark also gets a new mark."""
        now_ms = self._clock.wall_ms()
        for logs in _chunks(self._manager.logs.values()):
            states = self._manager.states(logs)
            work: list[tuple[PartitionLog, Call]] = []
            marking: list[tuple[PartitionLog, Call]] = []
            for log in logs:
                state = states.get(log.key)
                if state is None:
                    continue
                # Kafka syncs a segment when it rolls it. A mark for each segment's worth of bytes does nearly the same:
                # recovery has at most about that much to read.
                is_mark_due = state.appended_bytes - log.marked_bytes >= log.config.segment_bytes
                purge_before_ms = now_ms - log.config.get_int("file.delete.delay.ms")
                (marking if is_mark_due else work).append((log, _Upkeep(now_ms, purge_before_ms, is_mark_due)))
            await self._run_all("upkeep", work)
            for log, call in marking:
                if await self._run_each("upkeep", [(log, call)]):
                    log.marked_bytes = states[log.key].appended_bytes

    async def _run_all(self, what: str, work: list[tuple[PartitionLog, Call]]) -> None:
        """Run one blocking call per log, all in one job."""
        for log, error in await call_each(self._manager.executor, work):
            self._manager.failures.report(log, what, error)

    async def _run_each(self, what: str, work: list[tuple[PartitionLog, Call]]) -> bool:
        """Run the calls one after the other, each as a job of its own. Each call may take long, and a log that is to be
        closed must not wait for the calls of other logs. Returns True when no call failed."""
        all_succeeded = True
        for log, call in work:
            if not log.closing:
                try:
                    await log.run(call, log.native)
                except NativeError as error:
                    all_succeeded = False
                    self._manager.failures.report(log, what, error)
        return all_succeeded

    # ---- marks -----------------------------------------------------------------------------------------------------

    async def _mark_regularly(self) -> None:
        while True:
            await asyncio.sleep(_MARK_TICK_S)
            try:
                # To look at the logs is needless work on an idle broker, and some brokers have thousands of logs.
                written_bytes = self._manager.written_bytes
                if written_bytes >= self._next_look_bytes:
                    left_bytes = await self.mark()
                    self._next_look_bytes = written_bytes + max(_UNMARKED_BYTES - left_bytes, _UNMARKED_BYTES // 8)
            except Exception:
                logger.exception("setting marks failed; it is tried again")

    async def mark(self) -> int:
        """Set marks when all logs together have `_UNMARKED_BYTES` or more behind their marks. The logs with most such
        bytes come first, until half of `_UNMARKED_BYTES` is left. Returns the bytes that stay behind marks."""
        unmarked = await self._unmarked()
        left_bytes = sum(size_bytes for _, size_bytes, _ in unmarked)
        if left_bytes < _UNMARKED_BYTES:
            return left_bytes
        for log, size_bytes, appended_bytes in sorted(unmarked, key=itemgetter(1), reverse=True):
            if left_bytes <= _UNMARKED_BYTES // 2 or size_bytes < _WORTH_A_MARK_BYTES:
                break
            if await self._run_each("setting a mark", [(log, NativePartition.mark)]):
                log.marked_bytes = appended_bytes
                left_bytes -= size_bytes
        return left_bytes

    async def _unmarked(self) -> list[tuple[PartitionLog, int, int]]:
        """Each log with bytes behind its mark: the log, these bytes, and the bytes appended since it was opened."""
        unmarked = []
        for logs in _chunks(self._manager.logs.values()):
            states = self._manager.states(logs)
            for log in logs:
                state = states.get(log.key)
                if state is not None and state.appended_bytes > log.marked_bytes:
                    unmarked.append((log, state.appended_bytes - log.marked_bytes, state.appended_bytes))
            await asyncio.sleep(0)
        return unmarked

    # ---- syncing by time -------------------------------------------------------------------------------------------

    async def _flush_regularly(self) -> None:
        while True:
            shortest_ms = min((_flush_ms(log) for log in self._timed_logs()), default=_FLUSH_TICK_MS[1])
            await asyncio.sleep(max(_FLUSH_TICK_MS[0], min(shortest_ms, _FLUSH_TICK_MS[1])) / 1000)
            try:
                await self.flush()
            except Exception:
                logger.exception("syncing by time failed; it is tried again")

    def _timed_logs(self) -> list[PartitionLog]:
        return [log for log in self._manager.logs.values() if log.flushes and not log.closing]

    async def flush(self) -> None:
        """Sync each log that has reached its flush.messages or flush.ms."""
        now_ms = self._clock.monotonic_ms()
        logs = self._timed_logs()
        states = self._manager.states(logs)
        due = [log for log in logs if self._is_due(log, states[log.key], now_ms)]
        for log in due:
            self._flushed_ms[log] = now_ms
        if due:
            await self._run_each("sync", [(log, NativePartition.sync) for log in due])
        for gone in [log for log in self._flushed_ms if log.closing]:
            del self._flushed_ms[gone]

    def _is_due(self, log: PartitionLog, state: PartitionState, now_ms: int) -> bool:
        unsynced_count = state.log_end_offset - state.durable_offset
        if unsynced_count <= 0:
            self._flushed_ms[log] = now_ms
            return False
        is_many = unsynced_count >= log.config.get_int("flush.messages")
        return is_many or now_ms - self._flushed_ms.setdefault(log, now_ms) >= _flush_ms(log)


class _Upkeep:
    """One log's upkeep, as a call to run in a thread."""

    __slots__ = ("mark", "now_ms", "purge_before_ms")

    def __init__(self, now_ms: int, purge_before_ms: int, mark: bool) -> None:
        self.now_ms = now_ms
        self.purge_before_ms = purge_before_ms
        self.mark = mark

    def __call__(self, native: NativePartition) -> None:
        if self.mark:
            native.mark()
        native.upkeep(self.now_ms, self.purge_before_ms)


def _flush_ms(log: PartitionLog) -> int:
    """How old an unsynced record of the log may become. A second when neither flush.ms nor flush.messages is set."""
    flush_ms = log.config.get_int("flush.ms")
    is_bounded = flush_ms < _UNBOUNDED or log.config.get_int("flush.messages") < _UNBOUNDED
    return flush_ms if is_bounded else _DEFAULT_FLUSH_MS


def _delete(native: NativePartition, decision: RetentionDecision) -> int:
    assert decision.delete_before is not None
    # Roll only a segment that the decision knows: an append may have begun a newer active segment since.
    is_active = native.segments()[-1].base_offset < decision.delete_before
    try:
        if decision.roll and is_active:
            native.roll()
    except NativeError as error:
        if not is_full(error):
            raise
        # The disk is too full for a new active segment. Delete the sealed segments now and the active one later.
        return native.delete_before(native.segments()[-1].base_offset)
    return native.delete_before(decision.delete_before)


def _chunks(logs: Iterable[PartitionLog]) -> Iterator[list[PartitionLog]]:
    """Logs that were open at the start, some at a time; those closed meanwhile are left out."""
    every = list(logs)
    for start in range(0, len(every), _LOGS_PER_JOB):
        yield [log for log in every[start : start + _LOGS_PER_JOB] if not log.closing]
