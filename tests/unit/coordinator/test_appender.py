"""`PartitionAppender` over a writer in memory: order, batches, failures, how long clients wait, and the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from broker_double import SystemClock, settle
from memory_writer import MemoryWriter
from virtual_time import run

from pybroker.coordinator.appender import AfterReceived, PartitionAppender, PendingBatch, at_once
from pybroker.coordinator.outcome import NOTHING, CoordinatorRecord, Outcome
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, KafkaError


class Setup:
    """An appender whose replayed changes are kept as (change, offset)."""

    def __init__(self, *, timeout_ms: int = 5_000, after_received: AfterReceived = at_once) -> None:
        self.writer = MemoryWriter()
        self.writer.max_message_bytes = 1_000
        self.replayed: list[tuple[Any, int]] = []
        self.appender = PartitionAppender(
            self.writer,
            "topic",
            0,
            7,
            SystemClock(),
            lambda change, offset: self.replayed.append((change, offset)),
            timeout_ms=timeout_ms,
            after_received=after_received,
        )

    def submit(self, *changes: Any, value: bytes | None = b"v") -> asyncio.Future[ErrorCode]:
        return self.appender.submit(Outcome([CoordinatorRecord(b"k", value, change) for change in changes]))

    def batches(self) -> list[list[bytes | None]]:
        data = b"".join(self.writer.logs.get(("topic", 0), []))
        return [[record.value for record in batch.records] for batch in record_batch.parse(data)]


def test_what_comes_in_one_turn_or_gathers_shares_a_batch() -> None:
    async def test() -> None:
        made = Setup()
        first, second = made.submit("a", None, "b"), made.submit("c", value=None)
        assert made.batches() == []
        assert await asyncio.gather(first, second) == [ErrorCode.NONE] * 2
        assert made.replayed == [("a", 0), ("b", 2), ("c", 3)]
        made.writer.hold()
        waiting = [made.submit("d")]
        await settle()
        waiting += [made.submit("e", value=b"x" * 800), made.submit("f", value=b"x" * 800), made.submit("g")]
        await settle()
        made.writer.release()
        assert await asyncio.gather(*waiting) == [ErrorCode.NONE] * 4
        assert [len(batch) for batch in made.batches()] == [4, 1, 1, 2]
        assert [change for change, _ in made.replayed] == list("abcdefg")
        await made.appender.closed()

    run(test())


def test_batches_are_as_large_as_the_topic_allows_now() -> None:
    async def test() -> None:
        made = Setup()
        for max_message_bytes, batch_count in ((1_000, 2), (2_000, 1), (400, 4)):
            made.writer.max_message_bytes = max_message_bytes
            before_count = made.writer.append_count
            waiting = [made.submit("a", value=b"x" * 250) for _ in range(4)]
            assert await asyncio.gather(*waiting) == [ErrorCode.NONE] * 4
            assert made.writer.append_count - before_count == batch_count

    run(test())


def test_a_partition_that_is_led_no_more_is_told_as_the_reason() -> None:
    class Gone(MemoryWriter):
        def max_batch_bytes(self, topic: str, partition: int) -> int:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def test() -> None:
        writer = Gone()
        writer.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
        appender = PartitionAppender(writer, "t", 0, 1, SystemClock(), lambda *_: None, timeout_ms=5_000)
        outcome = Outcome([CoordinatorRecord(b"k", b"v")])
        assert await asyncio.gather(*(appender.submit(outcome) for _ in range(2))) == [ErrorCode.NOT_COORDINATOR] * 2

    run(test())


def test_follow_ups_come_after_what_was_submitted_before() -> None:
    async def test() -> None:
        made = Setup()

        def follow_up(error: ErrorCode) -> Outcome:
            return Outcome([CoordinatorRecord(b"k", b"later", error)])

        made.appender.submit(Outcome([CoordinatorRecord(b"k", b"v", "first")], follow_up))
        made.submit("second")
        await made.appender.closed()
        assert made.replayed == [("first", 0), ("second", 1), (ErrorCode.NONE, 2)]

    run(test())


def test_a_failure_is_told_and_the_next_batch_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        made = Setup()
        told: list[ErrorCode] = []

        def on_append(error: ErrorCode) -> Outcome:
            told.append(error)
            return NOTHING

        made.writer.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused = made.appender.submit(Outcome([CoordinatorRecord(b"k", b"v", "refused")], on_append))
        assert await refused is ErrorCode.NOT_COORDINATOR
        made.writer.hold()
        failing = made.appender.submit(Outcome([CoordinatorRecord(b"k", b"v", "failing")], on_append))
        await settle()
        made.writer.release()
        assert await failing is ErrorCode.NOT_COORDINATOR
        made.writer.fail_with = None
        broken = made.appender.submit(Outcome([CoordinatorRecord("no bytes", b"v")], on_append))  # type: ignore[arg-type]  # the defect
        assert await broken is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await made.submit("good") is ErrorCode.NONE
        assert told == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR]
        assert made.replayed == [("good", 0)]

    with caplog.at_level(logging.WARNING):
        run(test())
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "ERROR"]


def test_a_defect_in_replay_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        made = Setup()
        made.replayed = None  # type: ignore[assignment]  # so that replay raises
        assert await made.submit("a") is ErrorCode.UNKNOWN_SERVER_ERROR
        made.replayed = []
        assert await made.submit("b") is ErrorCode.NONE

    run(test())
    assert "could not be applied" in caplog.text


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_defect_in_telling_holds_up_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, count: int, is_refused: bool
) -> None:
    def fail(self: PendingBatch, *_: Any) -> None:
        raise RuntimeError("a defect")

    async def test() -> None:
        made = Setup()
        made.writer.max_message_bytes = 100_000
        made.writer.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_refused else None
        with monkeypatch.context() as patch:
            patch.setattr(PendingBatch, "answer", fail)
            made.submit(*range(count))
            await settle()
        made.writer.fail_with = None
        async with asyncio.timeout(5):
            assert await made.submit("next") is ErrorCode.NONE
            await made.appender.replayed()
            await made.appender.closed()

    run(test())
    assert "could not be told" in caplog.text


@pytest.mark.parametrize("end", [RuntimeError, asyncio.CancelledError])
def test_a_long_replay_that_is_cut_short_leaves_no_reader_waiting(
    monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    async def cut(_: Any) -> None:
        raise end

    async def test() -> None:
        made = Setup()
        made.writer.max_message_bytes = 100_000
        made.writer.hold()
        made.submit(*range(300))
        await settle()
        with monkeypatch.context() as patch:
            patch.setattr("pybroker.coordinator.appender.run_in_slices", cut)
            made.writer.release()
            await settle()
        reading, coming = asyncio.create_task(made.appender.replayed()), made.submit("next")
        await settle()
        assert reading.done()
        assert coming.done() and coming.result() is ErrorCode.NONE
        assert made.appender._task is not None
        with pytest.raises(end):
            await made.appender._task

    run(test())


def test_how_long_clients_wait_counts_from_when_they_ask() -> None:
    async def test() -> None:
        made = Setup(timeout_ms=40)
        for _ in range(3):  # the timer of one batch is not that of the next
            assert await made.submit("quick") is ErrorCode.NONE
            await asyncio.sleep(0.02)
        made.writer.hold()
        late = made.submit("late")
        assert await late is ErrorCode.COORDINATOR_NOT_AVAILABLE
        behind = made.submit("behind", value=b"x" * 900)
        await asyncio.sleep(0.02)
        last = [made.submit("last", value=b"x" * 900), made.submit("with it")]
        assert not behind.done()
        assert await behind is ErrorCode.COORDINATOR_NOT_AVAILABLE, "its turn does not come"
        assert not any(each.done() for each in last)
        made.writer.release()
        assert await asyncio.gather(*last) == [ErrorCode.NONE] * 2
        assert [change for change, _ in made.replayed] == ["quick"] * 3 + ["late", "last", "with it"]
        await made.appender.closed()

    run(test())


def test_one_who_asks_while_deadlines_are_judged_keeps_nobody_waiting_longer() -> None:
    """The judge waits for what the data plane has by now."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        judges: list[Callable[[], None]] = []
        made = Setup(timeout_ms=1_000, after_received=judges.append)
        made.writer.hold()
        told_s: dict[str, float] = {}

        def ask(name: str) -> None:
            made.submit(name, value=b"x" * 900).add_done_callback(lambda _: told_s.update({name: loop.time()}))

        async def sleep_until(time_s: float) -> None:
            await asyncio.sleep(time_s - loop.time())

        ask("first")
        await sleep_until(0.4)
        ask("second")
        await sleep_until(1.1)
        ask("between")
        assert len(judges) == 1, "and it has not judged yet"
        judges.pop()()
        for time_s in (1.3, 1.5, 1.9, 2.2):
            await sleep_until(time_s)
            while judges:
                judges.pop()()
        await settle()
        assert told_s == pytest.approx({"first": 1.1, "second": 1.5, "between": 2.2})
        made.writer.release()
        await made.appender.closed()

    run(test())


def test_what_clients_try_again_and_again_does_not_gather_behind_an_append_that_takes_for_ever() -> None:
    """As below min.insync.replicas."""
    told: list[ErrorCode] = []

    def on_append(error: ErrorCode) -> Outcome:
        told.append(error)
        return NOTHING

    async def test() -> None:
        made = Setup(timeout_ms=4_500)
        made.writer.hold()
        assert await made.submit("first") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        for number in range(1_000):
            made.appender.submit(Outcome([CoordinatorRecord(b"k", b"x" * 800, number)], on_append))
            await asyncio.sleep(1)
        assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 996
        made.writer.release()
        await made.appender.closed()
        assert [change for change, _ in made.replayed] == ["first", 996, 997, 998, 999]
        assert told[996:] == [ErrorCode.NONE] * 4

    run(test())


def test_closed_waits_for_what_is_under_way_and_survives_a_cancelled_wait() -> None:
    async def test() -> None:
        made = Setup()
        await made.appender.closed()
        made.writer.hold()
        made.submit("a")
        closings = [asyncio.create_task(made.appender.closed()) for _ in range(2)]
        await settle()
        closings[0].cancel()
        await settle()
        assert [closing.done() for closing in closings] == [True, False]
        made.writer.release()
        await closings[1]
        assert made.replayed == [("a", 0)]

    run(test())
