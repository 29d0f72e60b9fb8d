"""`LogMover`: moves logs from one log dir to another while they are served (KIP-113).

A log is copied to `<topic>-<partition>.<id>-future` in the other dir until the copy is nearly level. Then its writes
are held, for the rest of the copy and the switch: producers wait meanwhile and notice nothing else. The old directory
is renamed to `<topic>-<partition>.<id>-delete`, with the same id: that name is what decides. A start that finds it
makes the future directory the log; one that does not removes the future directory and begins the move again.

State belongs to the asyncio loop; copies and switches block on threads of their own. A move that fails leaves the log
where it was, and says why in the broker's log.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pybroker.native.errors import NativeError
from pybroker.native.partition import Segment
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.storage.dirs.directory_copy import DirectoryCopy, LogFile
from pybroker.storage.dirs.log_directory import DELETED_SUFFIX, FUTURE_SUFFIX, NAME_BYTES, LogDirectory
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.log_failures import Consequence, consequence
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.values import Value

logger = logging.getLogger(__name__)

_RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
#: Writes are held when no more than this is missing: some milliseconds of copying.
_LEVEL_BYTES = 1 << 20
_BUSY_INTERVAL_S = 0.002
_BUSY_TIMEOUT_S = 30.0
_NAP_S = 0.1


class _Cancelled(Exception):
    """The move is not wanted any more."""


@dataclass(slots=True)
class Move:
    """One log on its way. `copy` is there once the copy has begun; `begun` is done then, or when it never will. `turn`
    is done when there is a thread for it."""

    log: PartitionLog
    target: LogDirectory
    name: str
    begun: asyncio.Future[None]
    cancelled: threading.Event = field(default_factory=threading.Event)
    is_made: bool = False
    copy: DirectoryCopy | None = None
    turn: asyncio.Task[Any] | None = None

    @property
    def future(self) -> Path:
        """Where the copy lies."""
        return self.target.path / (self.name + FUTURE_SUFFIX)

    def cancel(self) -> None:
        """It ends soon, if not where it was meant to."""
        self.cancelled.set()
        if self.turn is not None:
            self.turn.cancel()


class FutureLog(Value):
    """A copy that is not the log yet, for DescribeLogDirs."""

    key: TopicPartition
    log_dir: Path
    size_bytes: int
    offset_lag: int


class LogMover:
    """`request` moves; `stop` before the logs are closed."""

    def __init__(
        self, manager: LogManager, on_moved: Callable[[TopicPartition, bytes, bytes], Awaitable[None]]
    ) -> None:
        """`on_moved` is told of a partition, its topic's id and the id of the dir it lies in now."""
        self._manager = manager
        self._on_moved = on_moved
        self._moves: dict[TopicPartition, Move] = {}
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        count = manager.config.get("num.replica.alter.log.dirs.threads")
        thread_count = count if isinstance(count, int) else len(manager.directories)
        self._executor = ThreadPoolExecutor(thread_count, thread_name_prefix="move")
        #: A move keeps its thread up to the switch: one that is nearly level must not wait for the copies of others.
        self._threads = asyncio.Semaphore(thread_count)
        self._pace = _Pace(manager)
        #: Unfinished copies stay where they are, as a sign that the move was wanted.
        self._keep = False

    async def request(self, key: TopicPartition, log_dir: str) -> None:
        """Let a log move to `log_dir`; a move to where it lies ends one that is under way. Returns when it has begun,
        in a way that outlives the process. KafkaError."""
        if self._keep:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "the broker stops")
        log = self._manager.logs[key]
        target = self._find(log_dir)
        move = self._moves.get(key)
        if move is not None:
            # The other log is of an earlier topic of that name.
            if move.target is target and move.log is log:
                return
            # Its task ends soon and begins the next one.
            move.cancel()
            if move.log is not log and target is log.directory:
                return
        elif target is log.directory:
            return
        if len(f"{key[0]}-{key[1]}.{uuid.uuid4().hex}{DELETED_SUFFIX}") > NAME_BYTES:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name of topic {key[0]} is too long for a move")
        await asyncio.shield(self._begin(log, target).begun)

    def check_log_dir(self, log_dir: str) -> None:
        """KafkaError unless logs can move there."""
        self._find(log_dir)

    def _find(self, log_dir: str) -> LogDirectory:
        wanted = Path(log_dir).absolute()
        for directory in self._manager.live:
            if directory.path.absolute() == wanted:
                return directory
        if any(path.absolute() == wanted for path in self._manager.failures.offline):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log dir {log_dir} is offline")
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{log_dir} is not among log.dirs")

    def resume(self) -> None:
        """Begin those moves again that the last stop interrupted."""
        for key, target in self._manager.interrupted_moves.items():
            log = self._manager.logs.get(key)
            if log is not None and log.directory is not target and target.failure is None:
                logger.warning("%s: its move to %s begins again", log, target.path)
                self._begin(log, target)
        self._manager.interrupted_moves.clear()

    def futures(self) -> list[FutureLog]:
        """How far the moves are."""
        found = []
        for key, move in self._moves.items():
            if move.copy is not None and not move.cancelled.is_set() and not move.log.closing:
                lag = _offset_lag(move.copy, move.log.native.segments(), move.log.native.state.log_end_offset)
                found.append(FutureLog(key, move.target.path, move.copy.copied_bytes, lag))
        return found

    async def stop(self) -> None:
        """Break off what is under way; the next start begins it again."""
        self._keep = True
        while self._tasks:
            for move in self._moves.values():
                move.cancel()
            await asyncio.wait(list(self._tasks.values()))
        self._executor.shutdown()

    def _begin(self, log: PartitionLog, target: LogDirectory) -> Move:
        loop = asyncio.get_running_loop()
        move = Move(log, target, f"{log}.{uuid.uuid4().hex}", loop.create_future())
        before = self._tasks.get(log.key)
        self._moves[log.key] = move
        self._tasks[log.key] = loop.create_task(self._run(move, before), name=f"move of {log}")
        return move

    async def _run(self, move: Move, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        log = move.log
        try:
            if not log.closing and log.directory is not move.target:
                await self._move(move)
        finally:
            _resolve(move.begun)
            if self._moves.get(log.key) is move:
                del self._moves[log.key], self._tasks[log.key]

    async def _move(self, move: Move) -> None:
        log, source = move.log, move.log.directory
        original = source.path / (move.name + DELETED_SUFFIX)
        loop = asyncio.get_running_loop()
        logger.info("%s moves from %s to %s", log, source.path, move.target.path)
        try:
            with _held(log):
                move.copy = await loop.run_in_executor(self._manager.executor, _begin_copy, move)
            _resolve(move.begun)
            # Not held while it waits for others: a topic must not wait for them to be deleted.
            await self._turn(move)
            try:
                _check(move)
                with _held(log):
                    held_ms = await self._copy_and_switch(move, original)
            finally:
                self._threads.release()
        except (_Cancelled, NativeError, OSError) as error:
            if not (self._keep and isinstance(error, _Cancelled)) and not move.is_made:
                await self._manager.remove(move.future)
            self._on_failure(move, error)
            return
        logger.warning("%s has moved to %s; its writes were held for %d ms", log, move.target.path, held_ms)
        self._manager.remove_later(original)
        await self._on_moved(log.key, log.topic_id, move.target.directory_id)

    async def _turn(self, move: Move) -> None:
        """Wait until there is a thread for it."""
        move.turn = asyncio.get_running_loop().create_task(self._threads.acquire())
        if move.cancelled.is_set():
            move.turn.cancel()
        try:
            await move.turn
        except asyncio.CancelledError:
            raise _Cancelled from None

    async def _copy_and_switch(self, move: Move, original: Path) -> int:
        """For how many ms writes were held."""
        held_ms = None
        while held_ms is None:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._bring_up, move)
            try:
                held_ms = await self._switch_beside_cleaner(move, original)
            except NativeError as error:
                if error.errno != errno.ESTALE or not _was_cut(move):
                    raise
                logger.info("%s was cut on its move to %s: it is copied anew", move.log, move.target.path)
        await self._manager.relocate(move.log, move.target, move.target.path / str(move.log))
        return held_ms

    def _on_failure(self, move: Move, error: Exception) -> None:
        log, failures = move.log, self._manager.failures
        if isinstance(error, _Cancelled):
            logger.info("%s: its move to %s was broken off", log, move.target.path)
            return
        logger.error("%s could not be moved to %s: %s", log, move.target.path, error)
        if isinstance(error, OSError) and consequence(error) is Consequence.DIRECTORY:
            for directory in (move.target, log.directory):
                if Path(error.filename or "").is_relative_to(directory.path):
                    failures.report_directory(directory, f"moving {log}", error)
        if move.is_made and not log.closing:
            failures.fail_log(log, f"its move to {move.target.path} was made, but not to its end: {error}")

    async def _switch_beside_cleaner(self, move: Move, original: Path) -> int:
        """Switch while no pass of the cleaner is at the log; for how many ms writes were held."""
        log = move.log
        log.is_switching = True
        try:
            while log.interrupt is not None:
                log.interrupt()
                await asyncio.sleep(_NAP_S / 10)
            return await asyncio.get_running_loop().run_in_executor(self._executor, _hold_and_switch, move, original)
        finally:
            log.is_switching = False

    def _bring_up(self, move: Move) -> None:
        """On a thread: copy until nearly nothing is missing."""
        assert move.copy is not None

        def pace(count: int) -> None:
            self._pace(move, count)

        native = move.log.native
        missing_bytes = _LEVEL_BYTES + 1
        while missing_bytes > _LEVEL_BYTES:
            _check(move)
            # State derived from the log reaches its files, so that the hold has little of it to write.
            try:
                _at_source(move, lambda: native.upkeep(self._manager.clock.wall_ms(), 0))
            except NativeError as error:
                # A full disk is a reason to leave it.
                if consequence(error) is not Consequence.NOTHING:
                    raise
            missing_bytes = _follow(move, pace)


@contextmanager
def _held(log: PartitionLog) -> Iterator[None]:
    log.hold()
    try:
        yield
    finally:
        log.release()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# ---- on a thread -----------------------------------------------------------------------------------------------------


def _begin_copy(move: Move) -> DirectoryCopy:
    copy = DirectoryCopy(move.log.path, move.future)
    fsync_directory(move.target.path)
    return copy


def _hold_and_switch(move: Move, original: Path) -> int:
    """For how many ms writes were held. The old directory's name becomes `original`. NativeError with
    ESTALE when it `_was_cut`."""
    native, started_ns = move.log.native, 0

    def hold() -> None:
        nonlocal started_ns
        started_ns = time.monotonic_ns()
        native.hold()

    _at_source(move, hold)
    try:
        # Writes must not be held while a whole log is copied: the switch says that it was cut.
        if not _was_cut(move):
            _follow(move, lambda count: None)
        _check(move)
        _switch(move, original)
    finally:
        native.unhold()
    return (time.monotonic_ns() - started_ns) // 1_000_000


def _follow(move: Move, pace: Callable[[int], None]) -> int:
    """Copy what is missing; how many bytes that were."""
    assert move.copy is not None
    native = move.log.native
    # The count first: a cut after it shows in the next pass.
    cut_count = native.state.cut_count
    files = {_name(each): LogFile(each.file_bytes, each.generation) for each in native.segments()}
    return move.copy.follow(files, cut_count, pace)


def _was_cut(move: Move) -> bool:
    """Since the last pass of the copy began: bytes that it has are not the log's any more."""
    assert move.copy is not None
    return move.copy.cut_count != move.log.native.state.cut_count


def _name(segment: Segment) -> str:
    return f"{segment.base_offset:020d}.log"


def _check(move: Move) -> None:
    if move.cancelled.is_set() or move.log.closing or move.target.failure is not None:
        raise _Cancelled


def _switch(move: Move, original: Path) -> None:
    """The copy is level and stays so. Up to the renaming of the old directory all can be undone; from then on the move
    is made, whatever else fails."""
    assert move.copy is not None
    native, source, final = move.log.native, move.log.path, move.target.path / str(move.log)
    cut_count = move.copy.cut_count
    _when_not_busy(lambda: native.relocate(str(move.future), cut_count, for_good=False))
    try:
        os.rename(source, original)
    except OSError:
        # It may be this disk that fails: the way back opens nothing there.
        native.go_back()
        raise
    move.is_made = True
    fsync_directory(original.parent)
    os.rename(move.future, final)
    _when_not_busy(lambda: native.relocate(str(final), cut_count, for_good=True))
    fsync_directory(move.target.path)


def _at_source(move: Move, call: Callable[[], None]) -> None:
    """A call on the log's own files. An error of their disk says so: nobody else may hear of it."""
    try:
        _when_not_busy(call)
    except NativeError as error:
        if consequence(error) is Consequence.DIRECTORY:
            raise OSError(error.errno, error.text, str(move.log.path)) from error
        raise


def _when_not_busy(call: Callable[[], None]) -> None:
    deadline_s = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            call()
        except NativeError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(_BUSY_INTERVAL_S)
        else:
            return


def _offset_lag(copy: DirectoryCopy, segments: list[Segment], end_offset: int) -> int:
    """How many offsets the copy is behind; within a segment, by the share of its bytes."""
    for segment in segments:
        copied_bytes = copy.copied_of(_name(segment))
        if copied_bytes < segment.size_bytes:
            share = copied_bytes / segment.size_bytes
            return end_offset - segment.base_offset - int(share * (segment.end_offset - segment.base_offset))
    return 0


class _Pace:
    """The throttle of all moves together: bytes are paid for after they were copied."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._free_at_s = 0.0
        self._last_rate = 0

    def __call__(self, move: Move, count: int) -> None:
        rate = self._rate()
        with self._lock:
            now_s = time.monotonic()
            if rate != self._last_rate:
                # Debt at another rate does not count: a small rate may have made hours of it.
                self._last_rate, self._free_at_s = rate, now_s
            self._free_at_s = max(self._free_at_s, now_s) + count / rate
            wait_s = self._free_at_s - now_s
        _check(move)
        while wait_s > 0:
            # A changed setting or a cancelled move has to take effect soon.
            time.sleep(min(wait_s, _NAP_S))
            wait_s -= _NAP_S
            _check(move)
            if self._rate() != rate:
                return

    def _rate(self) -> int:
        return max(1, self._manager.config.get_int(_RATE_KEY))
