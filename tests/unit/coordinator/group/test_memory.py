"""What members of groups hold is bounded for all of them together, and released on every way on which they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import scenario
from broker_double import BrokerDouble, image_with
from machine import Machine
from memory_writer import MemoryWriter

from pybroker.coordinator.group.model.memory import GroupMemory, protocols_bytes
from pybroker.coordinator.group.requests import removal
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.turns import run_at_once

MIB = 1 << 20
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
TOPIC_ID = bytes(range(16))


def protocols(size_bytes: int, count: int = 1) -> list[tuple[str, bytes]]:
    return [("range" if number == 0 else f"p{number}", bytes(size_bytes)) for number in range(count)]


def held(machine: Machine) -> int:
    return machine.state.memory.held_bytes


def test_waiting_joins_are_bounded_over_all_groups() -> None:
    """The reported case, in small: many members with large metadata, each in a group of its own."""
    machine = Machine(members_max_bytes=100 * MIB)
    replies = [machine.join(f"g{number}", api_version=3, protocols=protocols(8 * MIB)) for number in range(100)]
    refused = [reply for reply in replies if reply.response is not None]
    assert {reply.error for reply in refused} == {FULL}
    assert len(replies) - len(refused) == 9, "75 MiB, as the last quarter is for small requests"
    assert held(machine) <= 75 * MIB
    assert machine.state.memory.refused_count == len(refused)
    assert len(machine.state.groups) == 9, "and no group is made for one that is refused"
    # Others still get in, and those that are in stay.
    assert machine.join("small", api_version=3).response is None
    machine.advance(3_000)
    generation = replies[0].response.generation_id
    member = replies[0].response.member_id
    assert machine.join("g0", member, protocols=protocols(8 * MIB)).error is ErrorCode.NONE
    assert machine.heartbeat("g0", generation, member) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


def test_what_costs_memory_counts_not_only_metadata() -> None:
    """Protocols without metadata, and members that have only been given an id."""
    machine = Machine(members_max_bytes=4 * MIB)
    assert machine.join("g", api_version=3, protocols=protocols(0, 100_000)).error is FULL
    answers = [machine.join("g", client_id="x" * 32_000) for _ in range(1_000)]
    assert {answer.error for answer in answers} == {ErrorCode.MEMBER_ID_REQUIRED, FULL}
    assert 3 * MIB < held(machine) <= 4 * MIB
    machine.advance(10_000)
    assert held(machine) == 0, "they did not come back with their ids"


def test_a_member_may_always_come_back_with_as_much_as_it_has() -> None:
    machine = Machine(members_max_bytes=8 * MIB)
    member, joined = machine.join_dynamic("g", protocols=protocols(5 * MIB))
    machine.advance(3_000)
    assert joined.error is ErrorCode.NONE
    before = held(machine)
    assert machine.join("g", member, protocols=protocols(6 * MIB + MIB // 2)).error is FULL
    assert held(machine) == before
    assert machine.join("g", member, protocols=protocols(5 * MIB)).error is ErrorCode.NONE
    assert machine.join("g", member, protocols=protocols(1)).error is ErrorCode.NONE
    assert held(machine) < before - 5 * MIB + 10


def test_one_that_is_refused_is_not_waited_for() -> None:
    machine = Machine(members_max_bytes=8 * MIB)
    generation, (member,) = machine.stable_group("g")
    pending = machine.join("g").response.member_id
    rejoined = machine.join("g", member)
    assert rejoined.response is None, "the other one is waited for"
    assert machine.join("g", pending, protocols=protocols(8 * MIB)).error is FULL
    assert rejoined.response.generation_id == generation + 1


def test_assignments_count_while_they_are_stored_and_after() -> None:
    machine = Machine(members_max_bytes=16 * MIB)
    member, joined = machine.join_dynamic("g")
    machine.advance(3_000)
    before = held(machine)
    machine.hold = True
    synced = machine.sync("g", joined.response.generation_id, member, {member: bytes(4 * MIB)})
    assert synced.response is None
    assert held(machine) - before > 4 * MIB, "the record that is being appended"
    assert machine.sync("g", joined.response.generation_id, member, {member: bytes(6 * MIB)}).error is FULL
    machine.decide()
    assert synced.error is ErrorCode.NONE
    assert 4 * MIB <= held(machine) - before < 4 * MIB + 1_000
    machine.hold = False
    machine.leave("g", member)
    assert held(machine) == 0


def test_a_failed_append_releases_its_record() -> None:
    machine = Machine()
    member, joined = machine.join_dynamic("g")
    machine.advance(3_000)
    before = held(machine)
    machine.hold = True
    synced = machine.sync("g", joined.response.generation_id, member, {member: bytes(MIB)})
    machine.decide(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert synced.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert held(machine) == before


def _leave(machine: Machine, member: str) -> None:
    machine.leave("g", member)


def _expire(machine: Machine, _: str) -> None:
    machine.advance(10 * 60_000)


def _unload(machine: Machine, _: str) -> None:
    run_at_once(removal.unload_steps(machine.state))
    machine.state.release_memory()


@pytest.mark.parametrize("instance", [None, "static"])
@pytest.mark.parametrize("end", [_leave, _expire, _unload])
def test_every_end_of_a_member_releases_what_it_held(end: Callable[[Machine, str], None], instance: str | None) -> None:
    machine = Machine()
    if instance is None:
        member, joined = machine.join_dynamic("g", protocols=protocols(MIB))
    else:
        joined = machine.join("g", instance=instance, protocols=protocols(MIB))
    machine.advance(3_000)
    member, generation = joined.response.member_id, joined.response.generation_id
    machine.sync("g", generation, member, {member: bytes(MIB)}, instance)
    if instance is not None:
        replacing = machine.join("g", instance=instance, protocols=protocols(MIB))
        member = replacing.response.member_id
    assert 2 * MIB < held(machine) < 2 * MIB + 10_000
    end(machine, member)
    assert held(machine) == 0


def test_a_group_that_could_not_be_stored_holds_nothing() -> None:
    machine = Machine()
    machine.hold = True
    machine.join("g", api_version=3, protocols=protocols(MIB))
    assert held(machine) > MIB
    machine.decide(ErrorCode.NOT_COORDINATOR)
    assert held(machine) == 0


def test_what_the_log_says_is_taken_in_whatever_it_is() -> None:
    machine = Machine()
    member, joined = machine.join_dynamic("g", protocols=protocols(8 * MIB))
    machine.advance(3_000)
    machine.sync("g", joined.response.generation_id, member, {member: b"a"})
    # Twice: a later record of a group takes the place of an earlier one.
    reloaded = Machine(machine.log + machine.log[-1:], members_max_bytes=MIB)
    assert 8 * MIB < held(reloaded) < 8 * MIB + 10_000
    assert reloaded.join("other", api_version=3).error is FULL
    reloaded.leave("g", member)
    assert held(reloaded) == 0
    assert reloaded.join("other", api_version=3).response is None


def test_small_requests_have_a_reserve() -> None:
    memory = GroupMemory(100 * MIB)
    memory.held_bytes = 75 * MIB
    assert not memory.has_room(64 * 1024 + 1)
    assert memory.has_room(64 * 1024)
    assert memory.has_room(0)
    memory.held_bytes = 100 * MIB
    assert not memory.has_room(1)
    assert memory.has_room(-1)
    assert protocols_bytes(protocols(10)) > 10


def test_all_shards_of_a_broker_share_the_bound() -> None:
    async def run() -> None:
        image = image_with({scenario.TOPIC: (TOPIC_ID, 100)})
        settings = {"members_max_bytes": 4 * MIB, "offsets_topic_partition_count": 4}
        broker = BrokerDouble(image, MemoryWriter(), initial_rebalance_delay_ms=60_000, **settings)
        await broker.start()
        for partition in range(1, 4):
            broker.groups.on_election(partition, 1)
        while not all(map(broker.groups.is_active, range(4))):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
        joins = [asyncio.create_task(broker.call("a", 11, 3, _join(f"g{number}"))) for number in range(32)]
        await asyncio.sleep(0.1)
        statistics = await broker.groups.statistics(0)
        refused = [each for each in joins if each.done()]
        assert {each.result().error_code for each in refused} == {FULL}
        assert len(refused) == statistics.refused_count > 20
        assert 2 * MIB < statistics.held_bytes <= statistics.limit_bytes == 4 * MIB
        for partition in range(4):
            await broker.groups.on_resignation(partition)
        await asyncio.gather(*joins)
        assert (await broker.groups.statistics(0)).held_bytes == 0
        await broker.groups.stop()

    asyncio.run(run())


def _join(group: str) -> Any:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(MIB // 2))
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
