"""When deadlines are judged: after what was received before, one at a time, and not by a loop that stood still."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import scenario
import virtual_time
from broker_double import BrokerDouble, image_with, settle
from memory_writer import MemoryWriter

from pybroker.coordinator.deadline_clock import LOOK_INTERVAL_MS, DeadlineClock
from pybroker.protocol.errors import ErrorCode

IMAGE = image_with({scenario.TOPIC: (bytes(range(16)), 100)})
SESSION_MS, REBALANCE_MS = 6_000, 10_000


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10_000):
            await test

    virtual_time.run(bounded())


def stand_still(milliseconds: int) -> None:
    """The loop does nothing for so long, as when its process is stopped."""
    loop: Any = asyncio.get_running_loop()
    loop._virtual.now_s += milliseconds / 1000


async def started(**settings: Any) -> BrokerDouble:
    broker = BrokerDouble(IMAGE, MemoryWriter(), **settings)
    await broker.start()
    return broker


async def joined(broker: BrokerDouble, count: int) -> dict[str, asyncio.Task[Any]]:
    """Members of one generation, by id, whose SyncGroup is done."""
    fields = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS}
    members = [(await broker.call("a", 11, 9, scenario.join("g", **fields))).member_id for _ in range(count)]
    joins = [asyncio.create_task(broker.call("a", 11, 9, scenario.join("g", each, **fields))) for each in members]
    answers = [await each for each in joins]
    leader, generation = answers[0].leader, answers[0].generation_id
    syncs = [
        asyncio.create_task(
            broker.call(
                "a", 14, 5, scenario.sync("g", generation, each, dict.fromkeys(members, b"x") if each == leader else {})
            )
        )
        for each in members
    ]
    assert [(await each).error_code for each in syncs] == [0] * count
    return dict(zip(members, syncs, strict=True))


def heartbeat(broker: BrokerDouble, member: str, generation: int = 1) -> ErrorCode:
    return broker.groups.heartbeat("g", generation, member, None)


def test_sessions_move_by_the_length_of_a_standstill(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        broker = await started()
        members = list(await joined(broker, 3))
        await asyncio.sleep(SESSION_MS / 2000)
        stand_still(10 * SESSION_MS)
        # As long as a session had left before.
        await asyncio.sleep(SESSION_MS / 2000 - 0.5)
        assert [heartbeat(broker, each) for each in members] == [ErrorCode.NONE] * 3
        # Then those who show no life are late as ever.
        await asyncio.sleep(SESSION_MS / 1000 + 0.5)
        assert heartbeat(broker, members[0]) is ErrorCode.UNKNOWN_MEMBER_ID
        await broker.groups.stop()

    with caplog.at_level(logging.WARNING):
        run(test())
    (told,) = [each for each in caplog.records if "stood still" in each.getMessage()]
    assert isinstance(told.args, tuple) and isinstance(told.args[0], int)
    assert 10 * SESSION_MS <= told.args[0] <= 10 * SESSION_MS + LOOK_INTERVAL_MS


def test_a_rebalance_moves_by_the_length_of_a_standstill() -> None:
    async def test() -> None:
        broker = await started()
        first, second = await joined(broker, 2)
        rejoin = asyncio.create_task(
            broker.call("a", 11, 9, scenario.join("g", first, rebalance_timeout_ms=REBALANCE_MS, reason="again"))
        )
        await settle()
        stand_still(5 * REBALANCE_MS)
        await asyncio.sleep(1)
        # The other one has not been heard for all the time, and may still come.
        other = asyncio.create_task(
            broker.call("a", 11, 9, scenario.join("g", second, rebalance_timeout_ms=REBALANCE_MS))
        )
        assert [(await each).error_code for each in (rejoin, other)] == [0, 0]
        await broker.groups.stop()

    run(test())


@pytest.mark.parametrize("count", [2, 3, 10])
def test_deadlines_that_pass_together_end_one_join_once(count: int, caplog: pytest.LogCaptureFixture) -> None:
    """The session of the last awaited member ends the join, whose own deadline has passed too. Members that were
    answered stay."""

    async def test() -> None:
        broker = await started()
        # Without the clock's help: everything is due at one look.
        broker.groups._clock.look = lambda: 0  # type: ignore[method-assign]
        for _ in range(50):
            members = list(await joined(broker, count))
            generation = broker.groups._shards[0].state.groups["g"].generation_id
            rejoins = [
                asyncio.create_task(
                    broker.call(
                        "a",
                        11,
                        9,
                        scenario.join(
                            "g",
                            each,
                            session_timeout_ms=SESSION_MS,
                            rebalance_timeout_ms=REBALANCE_MS,
                            protocols=_changed(),
                        ),
                    )
                )
                for each in members[:-1]
            ]
            await settle()
            assert not any(each.done() for each in rejoins)
            stand_still(2 * REBALANCE_MS)
            answers = [await each for each in rejoins]
            assert {each.error_code for each in answers} == {0}
            assert {each.generation_id for each in answers} == {generation + 1}
            group = broker.groups._shards[0].state.groups["g"]
            assert sorted(group.members) == sorted(members[:-1])
            assert [heartbeat(broker, each, generation + 1) for each in members[:-1]] == [ErrorCode.NONE] * (count - 1)
            broker.groups.expire_sessions("g")
            await settle()
        await broker.groups.stop()

    with caplog.at_level(logging.ERROR):
        run(test())
    assert caplog.records == []


def _changed() -> list[Any]:
    from pybroker.protocol import messages as m

    return [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\xff\xff\xff\xff")]


def test_a_deadline_waits_for_what_was_received_before_it() -> None:
    async def test() -> None:
        broker = await started()
        waiting: list[Callable[[], None]] = []
        alive, dead = await joined(broker, 2)
        broker.groups.judge_deadlines(waiting.append)
        while not waiting:  # noqa: ASYNC110 - in virtual time, until the deadline has passed
            await asyncio.sleep(0.1)
        # Time goes on while others are handled; nobody is judged meanwhile, and nobody asks again and again.
        await asyncio.sleep(SESSION_MS / 1000)
        assert len(waiting) == 1
        assert heartbeat(broker, alive) is ErrorCode.NONE
        waiting.pop()()
        assert heartbeat(broker, dead) is ErrorCode.UNKNOWN_MEMBER_ID
        assert heartbeat(broker, alive) is ErrorCode.REBALANCE_IN_PROGRESS
        await broker.groups.stop()

    run(test())


def test_a_commit_is_not_too_late_whose_append_was_told_before_that_is_judged() -> None:
    """The loop stood still: its timers are due, and that the append is done waits in the queue."""

    async def test() -> None:
        broker = await started(offsets_commit_timeout_ms=5_000)
        waiting: list[Callable[[], None]] = []
        broker.groups.judge_deadlines(waiting.append)
        broker.writer.hold()
        quick = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g")))
        await settle()
        await asyncio.sleep(6)
        broker.writer.release()
        waiting.pop()()
        assert [each.error_code for each in (await quick).topics[0].partitions] == [ErrorCode.NONE]
        # One that is not done is late as ever.
        broker.writer.hold()
        slow = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g")))
        await settle()
        await asyncio.sleep(6)
        waiting.pop()()
        assert [each.error_code for each in (await slow).topics[0].partitions] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        broker.writer.release()
        await broker.groups.stop()

    run(test())


class _Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 7


def test_a_clock_stands_still_with_its_loop_alone() -> None:
    system = _Clock()
    clock = DeadlineClock(system)
    assert clock.look() == 0
    for late_ms in (0, 100, 250):
        system.now_ms += LOOK_INTERVAL_MS + late_ms
        assert clock.look() == 0
    before_ms = clock.monotonic_ms()
    system.now_ms += LOOK_INTERVAL_MS + 60_000
    assert clock.look() == LOOK_INTERVAL_MS + 60_000
    assert clock.monotonic_ms() == before_ms
    # Without deadlines nobody looks.
    clock.rest()
    system.now_ms += 60_000
    assert clock.look() == 0
    assert clock.monotonic_ms() == before_ms + 60_000
