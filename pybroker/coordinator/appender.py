"""Write-behind for one coordinator partition: what gathers while one batch is on its way goes out as the next.

Runs on the asyncio loop thread. At most one append per partition is under way, so that records are replayed in the
order of the log without any bookkeeping. The first append of a loop turn starts at the end of that turn: requests that
arrived together share a batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from pybroker.coordinator.outcome import Outcome, client_error
from pybroker.coordinator.partition_writer import PartitionWriter
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.record_batch import Record

_LOG = logging.getLogger(__name__)

#: More than what a record's own fields (lengths, deltas, attributes) take, and than a batch's header.
_RECORD_OVERHEAD_BYTES = 24
_BATCH_OVERHEAD_BYTES = 61

_TOO_LATE = client_error(ErrorCode.REQUEST_TIMED_OUT)


class WallClock(Protocol):
    def wall_ms(self) -> int: ...


class PendingBatch:
    """Records that will be, or are being, appended together, and who waits for them."""

    __slots__ = ("outcomes", "record_count", "records_bytes", "waiters")

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.record_count = 0
        self.records_bytes = 0
        self.waiters: list[asyncio.Future[ErrorCode]] = []

    def answer(self, error: ErrorCode) -> None:
        """Tell everyone who waits and has not been told yet."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(error)
        self.waiters.clear()


class PartitionAppender:
    """Appends outcomes to a partition in order, replays them and runs their callbacks.

    `replay(change, record_offset)` applies one committed record. `timeout_ms` bounds how long a client waits: after it
    the client is told COORDINATOR_NOT_AVAILABLE, while the append itself goes on, its effect being unknown.
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
        max_batch_bytes: int,
        timeout_ms: int,
    ) -> None:
        self._writer = writer
        self._topic = topic
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._clock = clock
        self._replay = replay
        self._max_batch_bytes = max_batch_bytes
        self._timeout_s = timeout_ms / 1000
        self._queue: list[PendingBatch] = []
        self._task: asyncio.Task[None] | None = None
        self._in_flight: PendingBatch | None = None
        self._loop = asyncio.get_running_loop()

    def submit(self, outcome: Outcome) -> asyncio.Future[ErrorCode]:
        """Append the outcome's records, of which there is at least one, in one batch, after all submitted before.

        The future gets the error code that the client is to see: NONE once the records are committed and replayed.
        """
        size_bytes = sum(
            len(record.key) + (len(record.value) if record.value is not None else 0) for record in outcome.records
        )
        size_bytes += _RECORD_OVERHEAD_BYTES * len(outcome.records)
        batch = self._queue[-1] if self._queue else None
        if batch is None or batch.records_bytes + size_bytes + _BATCH_OVERHEAD_BYTES > self._max_batch_bytes:
            batch = PendingBatch()
            self._queue.append(batch)
        batch.outcomes.append(outcome)
        batch.record_count += len(outcome.records)
        batch.records_bytes += size_bytes
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        return self._wait_for(batch)

    async def drained(self) -> None:
        """Return when everything submitted so far is decided, or the clients have been told that it takes too long."""
        if self._queue:
            await self._wait_for(self._queue[-1])
        elif self._in_flight is not None:
            await self._wait_for(self._in_flight)

    def _wait_for(self, batch: PendingBatch) -> asyncio.Future[ErrorCode]:
        # Each waiter has a future of its own: a request that is cancelled must not cancel the others' wait.
        waiter: asyncio.Future[ErrorCode] = self._loop.create_future()
        batch.waiters.append(waiter)
        return waiter

    async def closed(self) -> None:
        """Return when nothing is under way any more, whatever clients have been told."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._queue:
                batch = self._queue.pop(0)
                self._in_flight = batch
                timeout = self._loop.call_later(self._timeout_s, batch.answer, _TOO_LATE)
                try:
                    await self._append(batch)
                finally:
                    timeout.cancel()
                    self._in_flight = None
        finally:
            self._task = None

    async def _append(self, batch: PendingBatch) -> None:
        error = ErrorCode.NONE
        base_offset = -1
        try:
            data = record_batch.build(
                0,
                self._leader_epoch,
                [Record(record.key, record.value) for outcome in batch.outcomes for record in outcome.records],
                timestamp_ms=self._clock.wall_ms(),
            )
            base_offset = await self._writer.append(self._topic, self._partition, data)
        except KafkaError as failure:
            error = client_error(failure.code)
            _LOG.warning(
                "%s-%d: %d records could not be appended: %s", self._topic, self._partition, batch.record_count, failure
            )
        except Exception:  # noqa: BLE001 - whatever it was: those who wait must be told, the next batch be tried
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            _LOG.exception("%s-%d: %d records could not be appended", self._topic, self._partition, batch.record_count)
        self._decide(batch, error, base_offset)

    def _decide(self, batch: PendingBatch, error: ErrorCode, base_offset: int) -> None:
        try:
            self._apply(batch, error, base_offset)
        except Exception:  # noqa: BLE001 - a defect; those who wait must be told, and others served
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            _LOG.exception(
                "%s-%d: records at %d could not be applied; what is served may differ from the log until a restart",
                self._topic,
                self._partition,
                base_offset,
            )
        batch.answer(error)

    def _apply(self, batch: PendingBatch, error: ErrorCode, base_offset: int) -> None:
        offset = base_offset
        for outcome in batch.outcomes:
            if error is ErrorCode.NONE:
                for record in outcome.records:
                    if record.change is not None:
                        self._replay(record.change, offset)
                    offset += 1
            if outcome.on_append is not None:
                follow_up = outcome.on_append(error)
                if follow_up.records:
                    self.submit(follow_up)
