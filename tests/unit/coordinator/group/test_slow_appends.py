"""What clients are told, and when, while an append takes long or goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import scenario
from broker_double import BrokerDouble, settle
from coordinator_setup import IMAGE, run
from memory_writer import MemoryWriter

from pybroker.coordinator.group import coordinator
from pybroker.coordinator.group.log import replay
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode


async def _check_answered_while_held(broker: BrokerDouble, call: Coroutine[Any, Any, Any]) -> None:
    broker.writer.hold()
    waiting = asyncio.create_task(call)
    await settle()
    await asyncio.sleep(15)
    is_answered = waiting.done()
    broker.writer.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert is_answered
    assert (await waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await broker.groups.stop()


def test_sync_group_is_answered_within_the_commit_timeout() -> None:
    """Apache Kafka: the write operation times out after offsets.commit.timeout.ms, all SyncGroups are answered
    COORDINATOR_NOT_AVAILABLE and the group goes back to PreparingRebalance."""

    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter(), offsets_commit_timeout_ms=5_000)
        await broker.start()
        asked = await broker.call("a", 11, 9, scenario.join("g"))
        joined = await broker.call("a", 11, 9, scenario.join("g", asked.member_id))
        member, generation = joined.member_id, joined.generation_id
        waiting = broker.call("a", 14, 5, scenario.sync("g", generation, member, {member: b"x"}))
        await _check_answered_while_held(broker, waiting)

    run(test())


def test_static_join_is_answered_within_the_commit_timeout() -> None:
    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter(), offsets_commit_timeout_ms=5_000)
        await broker.start()
        joined = await broker.call("a", 11, 9, scenario.join("g", group_instance_id="i"))
        member, generation = joined.member_id, joined.generation_id
        await broker.call("a", 14, 5, scenario.sync("g", generation, member, {member: b"x"}, group_instance_id="i"))
        await _check_answered_while_held(broker, broker.call("b", 11, 9, scenario.join("g", group_instance_id="i")))

    run(test())


def test_commits_that_wait_for_slow_replicas_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may send one after the other, on as many connections as they like; they are told to try again."""
    monkeypatch.setattr(coordinator, "_MOST_QUEUED_BYTES", 1 << 20)

    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter(), offsets_commit_timeout_ms=5_000)
        await broker.start()
        broker.writer.hold()
        request = scenario.commit("g", partitions=[(index, 42, 3, "x" * 1000) for index in range(100)])
        waiting = [asyncio.create_task(broker.call("a", 8, 9, request)) for _ in range(50)]
        await settle()
        refused = [each for each in waiting if each.done()]
        assert {each.result().topics[0].partitions[0].error_code for each in refused} == {
            ErrorCode.COORDINATOR_NOT_AVAILABLE
        }
        assert 40 < len(refused) < 50
        broker.writer.release()
        assert {(await each).topics[0].partitions[0].error_code for each in waiting if each not in refused} == {
            ErrorCode.NONE
        }
        assert broker.groups._queued.held_bytes == 0
        assert (await broker.call("a", 8, 9, request)).topics[0].partitions[0].error_code == ErrorCode.NONE
        broker.writer.hold()
        failing = asyncio.create_task(broker.call("a", 8, 9, request))
        await settle()
        assert broker.groups._queued.held_bytes > 100_000
        broker.writer.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
        await failing
        assert broker.groups._queued.held_bytes == 0
        await broker.groups.stop()

    run(test())


def test_committed_offsets_stay_visible_while_a_group_is_being_deleted() -> None:
    """A deletion that is not committed, and here fails in the end, hides nothing: a consumer that is told that there is
    no offset goes by auto.offset.reset. Apache Kafka reads what is committed."""

    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter(), offsets_commit_timeout_ms=5_000)
        await broker.start()
        await broker.call("a", 8, 9, scenario.commit("g"))
        broker.writer.hold()
        waiting = asyncio.create_task(broker.call("b", 42, 2, m.DeleteGroupsRequest(groups_names=["g"])))
        await settle()
        during = await broker.call("a", 9, 8, scenario.fetch("g", [(scenario.TOPIC, [0])]))
        broker.writer.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert (await waiting).results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        after = await broker.call("a", 9, 8, scenario.fetch("g", [(scenario.TOPIC, [0])]))
        await broker.groups.stop()
        assert after.groups[0].topics[0].partitions[0].committed_offset == 42
        assert during.groups[0].topics[0].partitions[0].committed_offset == 42

    run(test())


def test_a_defect_in_replay_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who wait for the records behind it are told, and a deletion does not wait for commits that are over."""

    def broken(*_arguments: object) -> None:
        raise RuntimeError("a defect")

    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter())
        await broker.start()
        await broker.call("a", 8, 9, scenario.commit("g"))
        with monkeypatch.context() as patched:
            patched.setattr(replay, "apply", broken)
            await broker.call("a", 8, 9, scenario.commit("g"))
        answer = await broker.call("b", 42, 2, m.DeleteGroupsRequest(groups_names=["g"]))
        assert answer.results[0].error_code == ErrorCode.NONE
        await broker.groups.stop()

    run(test())
