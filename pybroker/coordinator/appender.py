"""Write-behind for one coordinator partition: what gathers while one batch is on its way goes out as the next.

Runs on the asyncio loop thread, by callbacks: a task per batch would cost as much as the batch. At most one append per
partition is under way, so that records are replayed in the order of the log without any bookkeeping. The first append
of a loop turn starts at the end of that turn: requests that arrived together share a batch. A batch of many records is
built and replayed in slices of the loop; `replayed` is for who reads what it changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol

from pybroker import native
from pybroker.coordinator.outcome import BATCH_OVERHEAD_BYTES, Outcome, client_error, record_bytes
from pybroker.coordinator.partition_writer import PartitionWriter
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.turns import run_at_once, run_in_slices

logger = logging.getLogger(__name__)

#: The memory of a waiting record beside its bytes in the log, with the changes of its replay.
RECORD_BYTES = 512
#: So many records are built, and replayed, at once.
_FEW = 200
_TOO_LATE = client_error(ErrorCode.REQUEST_TIMED_OUT)


#: Calls a function once every request and event that the data plane has by now is handled.
AfterReceived = Callable[[Callable[[], None]], None]


def at_once(judge: Callable[[], None]) -> None:
    """An `AfterReceived` where nothing waits to be handled."""
    judge()


class WallClock(Protocol):
    def wall_ms(self) -> int: ...


class QueuedBytes:
    """Bytes that wait to be appended, in all appenders that share it."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0


class PendingBatch:
    """Records that will be, or are being, appended together, and who waits for them."""

    __slots__ = ("max_bytes", "outcomes", "record_count", "records_bytes", "waiters")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.outcomes: list[Outcome] = []
        self.record_count = 0
        self.records_bytes = 0
        #: In the order in which they came, with the loop's time at which each is told that it takes too long.
        self.waiters: deque[tuple[float, asyncio.Future[ErrorCode]]] = deque()

    def has_room(self, records_bytes: int) -> bool:
        """Whether records of that size may go with those that are here."""
        return self.records_bytes + records_bytes + BATCH_OVERHEAD_BYTES <= self.max_bytes

    def answer(self, error: ErrorCode, until_s: float = math.inf) -> None:
        """Tell those who wait, and have waited long enough by `until_s`."""
        while self.waiters and self.waiters[0][0] <= until_s:
            _, waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(error)


class PartitionAppender:
    """Appends outcomes to a partition in order, replays them and runs their callbacks.

    `replay(change, record_offset)` applies one committed change, whose (first) record has that offset. `timeout_ms`
    bounds how long a client waits, also for its batch's turn: after it the client is told COORDINATOR_NOT_AVAILABLE.
    An append under way goes on, its effect being unknown; what nobody waits for any more before its turn is given up.
    `queued` counts what has not been decided yet, with the other appenders that have it. By way of `after_received`
    clients are told that it takes too long.
    """

    def __init__(
        self,
        writer: PartitionWriter,
        topic: str,
        partition: int,
        leader_epoch: int,
        clock: WallClock,
        replay: Callable[[Any, int], None],
        *,
        timeout_ms: int,
        queued: QueuedBytes | None = None,
        after_received: AfterReceived = at_once,
    ) -> None:
        self._writer = writer
        self._after_received = after_received
        self._queued = queued or QueuedBytes()
        self._topic = topic
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._clock = clock
        self._replay = replay
        #: As it was when it was asked for last. 0: no two outcomes share a batch.
        self._max_batch_bytes = 0
        self._timeout_s = timeout_ms / 1000
        self._queue: deque[PendingBatch] = deque()
        self._is_starting = False
        self._in_flight: PendingBatch | None = None
        #: While a batch is replayed in slices.
        self._replaying: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closers: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()

    def take_epoch(self, leader_epoch: int) -> None:
        """The partition's leader, which is still this broker, has another epoch."""
        self._leader_epoch = leader_epoch

    def max_batch_bytes(self) -> int:
        """How large a batch may be that is begun now: the topic may be altered at any time."""
        # Where it cannot be asked, nothing can be appended either: that is told to those who wait for it.
        with contextlib.suppress(KafkaError):
            self._max_batch_bytes = self._writer.max_batch_bytes(self._topic, self._partition)
        return self._max_batch_bytes

    def submit(self, outcome: Outcome) -> asyncio.Future[ErrorCode]:
        """Append the outcome's records, of which there is at least one, in one batch, after all submitted before.

        The future gets the error code that the client is to see: NONE once the records are committed and replayed.
        """
        records = outcome.records
        size_bytes = sum(map(record_bytes, records))
        batch = self._queue[-1] if self._queue else None
        if batch is None or not batch.has_room(size_bytes):
            batch = PendingBatch(self.max_batch_bytes())
            self._queue.append(batch)
        batch.outcomes.append(outcome)
        batch.record_count += len(records)
        batch.records_bytes += size_bytes
        self._queued.held_bytes += size_bytes + RECORD_BYTES * len(records)
        if self._in_flight is None and not self._is_starting:
            self._is_starting = True
            self._loop.call_soon(self._start)
        return self._wait_for(batch)

    def _wait_for(self, batch: PendingBatch) -> asyncio.Future[ErrorCode]:
        # Each waiter has a future of its own: a request that is cancelled must not cancel the others' wait.
        waiter: asyncio.Future[ErrorCode] = self._loop.create_future()
        deadline_s = self._loop.time() + self._timeout_s
        batch.waiters.append((deadline_s, waiter))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline_s, self._on_timer)
        return waiter

    async def closed(self) -> None:
        """Return when nothing is under way any more, whatever clients have been told."""
        while self._queue or self._in_flight is not None:
            closer: asyncio.Future[None] = self._loop.create_future()
            self._closers.append(closer)
            await closer
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def replayed(self) -> None:
        """Return when no batch has been replayed in part."""
        while self._replaying is not None:
            await asyncio.shield(self._replaying)

    # ---- one batch after the other ---------------------------------------------------------------------------------

    def _start(self) -> None:
        self._is_starting = False
        self._go_on()

    def _go_on(self) -> None:
        """Begin with the next batch, if there is one and nothing is under way."""
        while self._queue and self._in_flight is None:
            batch = self._in_flight = self._queue.popleft()
            if batch.record_count > _FEW:
                self._task = self._loop.create_task(self._append_in_slices(batch))
                break
            try:
                self._append(run_at_once(self._build_steps(batch)))
            except Exception as failure:  # noqa: BLE001 - whatever it was: those who wait must be told
                run_at_once(self._decide_steps(batch, self._explained(batch, failure), -1))
                self._in_flight = None
        if self._in_flight is None:
            for closer in self._closers:
                if not closer.done():
                    closer.set_result(None)
            self._closers.clear()

    async def _append_in_slices(self, batch: PendingBatch) -> None:
        try:
            data = await run_in_slices(self._build_steps(batch))
            self._append(data)
        except Exception as failure:  # noqa: BLE001 - whatever it was: those who wait must be told
            await self._decide_in_slices(batch, self._explained(batch, failure), -1)

    def _append(self, data: bytes) -> None:
        self._writer.append(self._topic, self._partition, data, self._appended)

    def _build_steps(self, batch: PendingBatch) -> Generator[None, None, bytes]:
        records = ((record.key, record.value) for outcome in batch.outcomes for record in outcome.records)
        return record_batch.build_plain_steps(
            self._leader_epoch, records, timestamp_ms=self._clock.wall_ms(), checksum=native.crc32c
        )

    def _on_timer(self) -> None:
        # One timer sees to all who wait: setting and cancelling one for each costs more than this look now and then.
        self._timer = None
        now_s = self._loop.time()
        if any(batch.waiters and batch.waiters[0][0] <= now_s for batch in self._undecided()):
            # The data plane may have told by now that an append is done.
            self._after_received(partial(self._tell_late, now_s))
        else:
            self._tell_late(now_s)

    def _undecided(self) -> list[PendingBatch]:
        # Records that are being replayed are committed.
        if self._in_flight is None or self._replaying is not None:
            return list(self._queue)
        return [self._in_flight, *self._queue]

    def _tell_late(self, until_s: float) -> None:
        for batch in self._undecided():
            batch.answer(_TOO_LATE, until_s)
        self._set_timer()
        self._give_up()

    def _set_timer(self) -> None:
        """For the next who will have waited too long. One who came since the timer ended has set it for later."""
        if self._timer is not None:
            self._timer.cancel()
        next_s = min((batch.waiters[0][0] for batch in self._undecided() if batch.waiters), default=None)
        self._timer = None if next_s is None else self._loop.call_at(next_s, self._on_timer)

    def _give_up(self) -> None:
        """An append under way may take for ever, as below min.insync.replicas. Clients try again and again, and what
        they have tried before must not gather."""
        while self._queue and not self._queue[0].waiters:
            run_at_once(self._decide_steps(self._queue.popleft(), _TOO_LATE, -1))

    def _appended(self, base_offset: int, failure: KafkaError | None) -> None:
        batch = self._in_flight
        assert batch is not None, "the writer calls back once"
        error = ErrorCode.NONE if failure is None else self._explained(batch, failure)
        if batch.record_count > _FEW:
            self._task = self._loop.create_task(self._decide_in_slices(batch, error, base_offset))
            return
        run_at_once(self._decide_steps(batch, error, base_offset))
        self._in_flight = None
        self._go_on()

    async def _decide_in_slices(self, batch: PendingBatch, error: ErrorCode, base_offset: int) -> None:
        """Nothing else is appended meanwhile, as it would be decided before the rest of this."""
        self._replaying = self._loop.create_future()
        try:
            await run_in_slices(self._decide_steps(batch, error, base_offset))
        finally:
            self._replaying.set_result(None)
            self._replaying = None
            self._in_flight = None
            self._go_on()

    def _explained(self, batch: PendingBatch, failure: Exception) -> ErrorCode:
        """Log why a batch could not be appended; the code that clients are to see."""
        text = "%s-%d: %d records could not be appended: %s"
        if isinstance(failure, KafkaError):
            logger.warning(text, self._topic, self._partition, batch.record_count, failure)
            return client_error(failure.code)
        logger.error(text, self._topic, self._partition, batch.record_count, failure, exc_info=failure)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def _decide_steps(self, batch: PendingBatch, error: ErrorCode, base_offset: int) -> Generator[None, None, None]:
        """Replay a batch, and tell all who wait for it; yields where that may be interrupted."""
        self._queued.held_bytes -= batch.records_bytes + RECORD_BYTES * batch.record_count
        try:
            yield from self._apply_steps(batch, error, base_offset)
        except Exception:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            logger.exception(
                "%s-%d: records at %d could not be applied; what is served may differ from the log until a restart",
                self._topic,
                self._partition,
                base_offset,
            )
        try:
            batch.answer(error)
        except Exception:  # a defect: what comes behind this batch must not wait for ever
            logger.exception("%s-%d: those who wait for a batch could not be told", self._topic, self._partition)

    def _apply_steps(self, batch: PendingBatch, error: ErrorCode, base_offset: int) -> Generator[None, None, None]:
        """Each outcome by itself: a defect in one must not leave those parked who wait for another. Raises it, at the
        end."""
        offset = base_offset
        failure: Exception | None = None
        for outcome in batch.outcomes:
            decided = error
            try:
                if error is ErrorCode.NONE:
                    yield from self._replay_steps(outcome, offset)
            except Exception as defect:  # noqa: BLE001 - raised below
                failure, decided = defect, ErrorCode.UNKNOWN_SERVER_ERROR
            offset += len(outcome.records)
            try:
                self._tell(outcome, decided)
            except Exception as defect:  # noqa: BLE001 - raised below
                failure = defect
        if failure is not None:
            raise failure

    def _replay_steps(self, outcome: Outcome, base_offset: int) -> Generator[None, None, None]:
        for offset, record in enumerate(outcome.records, base_offset):
            if record.change is not None:
                self._replay(record.change, offset)
                yield

    def _tell(self, outcome: Outcome, error: ErrorCode) -> None:
        if outcome.on_append is not None:
            follow_up = outcome.on_append(error)
            if follow_up.records:
                self.submit(follow_up)
