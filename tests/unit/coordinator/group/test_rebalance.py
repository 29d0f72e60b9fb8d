"""Rebalances of classic groups in virtual time: delays, timeouts, leaders, static members, failed appends."""

from __future__ import annotations

import pytest
from machine import Machine, persisted, subscription

from pybroker.coordinator.group.model.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from pybroker.coordinator.group.model.state import GroupState
from pybroker.protocol.errors import ErrorCode, KafkaError


def test_first_rebalance_waits_for_more_members() -> None:
    machine = Machine()
    _, first = machine.join_dynamic("g")
    machine.advance(2_999)
    assert first.response is None
    second_id, second = machine.join_dynamic("g")
    machine.advance(1)
    assert first.response is None, "a member came during the delay: it is extended"
    machine.advance(3_000)
    assert first.response.generation_id == second.response.generation_id == 1
    assert {member.member_id for member in first.response.members} == {first.response.member_id, second_id}
    assert second.response.members == []


def test_initial_delay_ends_at_the_rebalance_timeout() -> None:
    machine = Machine()
    _, first = machine.join_dynamic("g", rebalance_timeout_ms=7_000)
    for _ in range(4):
        machine.advance(2_900)
        machine.join_dynamic("g", rebalance_timeout_ms=7_000)
    assert first.response is not None


def test_pending_member_holds_the_join_phase_until_its_session_ends() -> None:
    machine = Machine()
    generation, (leader,) = machine.stable_group("g")
    pending = machine.join("g").response.member_id
    _, joined = machine.join_dynamic("g")
    assert machine.heartbeat("g", generation, leader) is ErrorCode.REBALANCE_IN_PROGRESS
    again = machine.join("g", leader)
    machine.advance(9_999)
    assert again.response is None
    machine.advance(1)
    assert again.response.generation_id == joined.response.generation_id == generation + 1
    assert machine.join("g", pending).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_rejoin_are_removed() -> None:
    machine = Machine()
    generation, members = machine.stable_group("g", 3)
    rejoined = machine.join("g", members[1], protocols=[("range", subscription("other"))])
    for _ in range(12):
        machine.advance(5_000)
        if rejoined.response is None:
            machine.heartbeat("g", generation, members[0])
            machine.heartbeat("g", generation, members[2])
    assert rejoined.response.leader == members[1]
    assert list(machine.state.groups["g"].members) == [members[1]]
    assert machine.heartbeat("g", generation, members[0]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_are_removed() -> None:
    machine = Machine()
    (_, leader_joined), (second, _) = machine.join_dynamic("g"), machine.join_dynamic("g")
    machine.advance(6_000)
    leader = leader_joined.response.member_id
    machine.sync("g", 1, leader, {leader: b"all"})
    for _ in range(13):
        machine.advance(5_000)
        machine.heartbeat("g", 1, leader)
        machine.heartbeat("g", 1, second)
    group = machine.state.groups["g"]
    assert list(group.members) == [leader]
    assert group.state is GroupState.PREPARING_REBALANCE


def test_session_timeout_empties_a_group_and_stores_it() -> None:
    machine = Machine()
    generation, _ = machine.stable_group("g")
    machine.advance(9_999)
    assert machine.state.groups["g"].state is GroupState.STABLE
    machine.advance(1)
    assert machine.state.groups["g"].state is GroupState.EMPTY
    assert machine.state.groups["g"].generation_id == generation + 1
    assert persisted(Machine(machine.log).state) == persisted(machine.state)


def test_heartbeats_keep_a_session() -> None:
    machine = Machine()
    generation, (member,) = machine.stable_group("g")
    for _ in range(10):
        machine.advance(9_000)
        assert machine.heartbeat("g", generation, member) is ErrorCode.NONE


def test_parked_join_of_a_new_member_times_out() -> None:
    machine = Machine()
    generation, (member,) = machine.stable_group("g")
    newcomer, joined = machine.join_dynamic("g", rebalance_timeout_ms=20 * 60_000)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        assert joined.response is None
        machine.advance(5_000)
        machine.heartbeat("g", generation, member)
    assert joined.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer not in machine.state.groups["g"].members


def test_protocol_is_the_one_all_support_and_most_prefer() -> None:
    machine = Machine()
    both = [("range", subscription()), ("sticky", subscription())]
    _, first = machine.join_dynamic("g", protocols=both)
    machine.join_dynamic("g", protocols=both[::-1])
    machine.join_dynamic("g", protocols=both[::-1])
    only = [("robin", subscription())]
    assert machine.join("g", protocols=only).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    machine.advance(9_000)
    assert first.response.protocol_name == "sticky"


def test_group_max_size() -> None:
    machine = Machine(max_size=2)
    _, members = machine.stable_group("g", 2)
    assert machine.join("g").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    smaller = Machine(machine.log, max_size=1)
    assert smaller.state.groups["g"].state is GroupState.PREPARING_REBALANCE
    kept = smaller.join("g", members[0])
    assert smaller.join("g", members[1]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    smaller.advance(60_000)
    assert kept.error is ErrorCode.NONE
    assert [member.member_id for member in kept.response.members] == [members[0]]


def test_assignment_that_cannot_be_stored_is_not_given_out() -> None:
    machine = Machine()
    _, joined = machine.join_dynamic("g")
    machine.advance(3_000)
    member = joined.response.member_id
    machine.hold = True
    synced = machine.sync("g", 1, member, {member: b"all"})
    assert synced.response is None
    machine.decide(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert synced.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert synced.response.assignment == b""
    assert machine.state.groups["g"].state is GroupState.PREPARING_REBALANCE


def test_assignment_of_an_overtaken_generation_is_not_given_out() -> None:
    machine = Machine()
    _, joined = machine.join_dynamic("g")
    machine.advance(3_000)
    member = joined.response.member_id
    machine.hold = True
    synced = machine.sync("g", 1, member, {member: b"all"})
    machine.join_dynamic("g")
    assert synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    machine.decide()
    assert machine.state.groups["g"].state is GroupState.PREPARING_REBALANCE
    assert machine.state.groups["g"].members[member].assignment == b""


def test_new_group_that_cannot_be_stored_is_forgotten() -> None:
    machine = Machine()
    machine.hold = True
    assert machine.join("g").error is ErrorCode.MEMBER_ID_REQUIRED
    parked = machine.join("g", instance="static")
    machine.decide(ErrorCode.NOT_COORDINATOR)
    assert parked.error is ErrorCode.NOT_COORDINATOR
    assert "g" not in machine.state.groups


def _static_group(machine: Machine) -> str:
    joined = machine.join("g", instance="one")
    machine.advance(3_000)
    member: str = joined.response.member_id
    machine.sync("g", 1, member, {member: b"mine"}, instance="one")
    return member


def test_static_leader_skips_the_assignment_when_it_comes_back() -> None:
    machine = Machine()
    old = _static_group(machine)
    back = machine.join("g", instance="one")
    new = back.response.member_id
    assert (back.response.skip_assignment, back.response.generation_id, back.response.leader) == (True, 1, new)
    assert machine.sync("g", 1, new, instance="one").response.assignment == b"mine"
    assert machine.heartbeat("g", 1, old, instance="one") is ErrorCode.FENCED_INSTANCE_ID
    assert persisted(Machine(machine.log).state) == persisted(machine.state)


def test_static_member_is_put_back_when_its_successor_cannot_be_stored() -> None:
    machine = Machine()
    old = _static_group(machine)
    machine.hold = True
    back = machine.join("g", instance="one")
    machine.decide(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert back.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.heartbeat("g", 1, old, instance="one") is ErrorCode.NONE
    assert machine.sync("g", 1, old, instance="one").response.assignment == b"mine"
    machine.advance(10_000)
    machine.decide()
    assert machine.state.groups["g"].state is GroupState.EMPTY


def test_static_member_with_another_protocol_makes_a_rebalance() -> None:
    machine = Machine()
    _static_group(machine)
    back = machine.join("g", instance="one", protocols=[("sticky", subscription())])
    assert back.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    both = [("sticky", subscription()), ("range", subscription())]
    back = machine.join("g", instance="one", protocols=both)
    assert (back.response.generation_id, back.response.protocol_name) == (2, "sticky")


def test_static_members_are_not_removed_for_not_rejoining() -> None:
    machine = Machine()
    old = _static_group(machine)
    machine.state.groups["g"].members[old].rebalance_timeout_ms = 5_000
    newcomer, joined = machine.join_dynamic("g", rebalance_timeout_ms=5_000)
    machine.heartbeat("g", 1, old, instance="one")
    machine.advance(5_000)
    assert joined.response.leader == newcomer, "a leader that is not there cannot assign"
    assert {member.member_id for member in joined.response.members} == {old, newcomer}


def test_repeated_join_answers_the_request_it_replaces() -> None:
    machine = Machine()
    member, first = machine.join_dynamic("g")
    second = machine.join("g", member)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    machine.advance(3_000)
    assert second.error is ErrorCode.NONE


def test_commit_is_refused_between_join_and_sync() -> None:
    machine = Machine()
    member, _ = machine.join_dynamic("g")
    machine.advance(3_000)
    with pytest.raises(KafkaError) as refused:
        machine.commit("g", 5, member=member, generation=1)
    assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert machine.committed("g") is None


def test_subscription_metadata_that_is_not_readable_protects_all_offsets() -> None:
    machine = Machine()
    joined = machine.join("g", instance="one", protocols=[("range", b"\0\1\0\0\0\2\0\1a")])
    machine.advance(3_000)
    assert joined.error is ErrorCode.NONE
    assert machine.state.groups["g"].is_subscribed_to("anything")
