"""A seeded random driver over one shard: whatever clients do and whichever appends fail, the invariants hold."""

from __future__ import annotations

import random

import pytest
from machine import MAX_BATCH_BYTES, Machine, Reply, persisted, subscription

from pybroker.coordinator.group.model.memory import pending_bytes
from pybroker.coordinator.group.model.state import GroupState
from pybroker.coordinator.group.requests import removal
from pybroker.protocol.errors import ErrorCode, KafkaError

GROUPS = ("one", "two")
PROTOCOLS = (
    [("range", subscription("events"))],
    [("range", subscription("events", "other")), ("sticky", subscription())],
    [("sticky", subscription("events"))],
)


class Driver:
    """Clients that join, sync, beat, commit and leave at random, and remember what they were told."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = Machine(
            max_size=self.rng.choice((3, 2**31 - 1)), members_max_bytes=self.rng.choice((5_000, 12_000, 256 << 20))
        )
        self.parked: list[tuple[str, str, int, Reply]] = []
        self.joined: dict[tuple[str, str], tuple[int, str]] = {}
        self.generations: dict[str, int] = {}
        self.assigned: dict[tuple[str, int, str], bytes] = {}
        self.acked: dict[tuple[str, int], int] = {}
        self.next_offset = 0

    def run(self, step_count: int) -> None:
        actions = (
            [self.join_new] * 3
            + [self.rejoin] * 3
            + [self.sync] * 6
            + [self.heartbeat] * 4
            + [self.commit] * 4
            + [self.leave, self.pass_time, self.pass_time, self.expire, self.fail, self.decide, self.hold]
        )
        for _ in range(step_count):
            self.rng.choice(actions)()
            self.hear_answers()
            self.check()
        self.machine.decide()
        self.machine.hold = False
        self.hear_answers()
        self.check()
        self.check_reload()
        self.machine.state.release_memory()
        assert self.machine.state.memory.held_bytes == 0

    # ---- what clients do -------------------------------------------------------------------------------------------

    def join_new(self) -> None:
        group = self.rng.choice(GROUPS)
        instance = self.rng.choice((None, None, "static-1", "static-2"))
        self.park(
            "join",
            group,
            0,
            self.machine.join(
                group, instance=instance, protocols=self.rng.choice(PROTOCOLS), api_version=self.rng.choice((3, 5, 9))
            ),
        )

    def rejoin(self) -> None:
        members = [(group, name) for group in GROUPS for name in self.members(group)]
        members += [
            (g, name)
            for g in self.machine.state.groups
            for name in self.machine.state.groups[g].pending_join_member_ids
        ]
        if members:
            group, member = self.rng.choice(sorted(members))
            self.park("join", group, 0, self.machine.join(group, member, protocols=self.rng.choice(PROTOCOLS)))

    def sync(self) -> None:
        if self.joined:
            (group, member), (generation, leader) = self.rng.choice(sorted(self.joined.items()))
            reply = Reply()
            assignments = {}
            if leader == member and group in self.machine.state.groups:
                assignments = {name: f"{generation}:{name}".encode() for name in self.members(group)}
            synced = self.machine.sync(group, generation, member, assignments)
            del reply
            self.park(f"sync {member}", group, generation, synced)

    def heartbeat(self) -> None:
        if self.joined:
            (group, member), (generation, _) = self.rng.choice(sorted(self.joined.items()))
            self.machine.heartbeat(group, generation, member)

    def commit(self) -> None:
        group = self.rng.choice(GROUPS)
        member, generation = "", -1
        if self.joined and self.rng.random() < 0.7:
            (group, member), (generation, _) = self.rng.choice(sorted(self.joined.items()))
        self.next_offset += 1
        before = len(self.machine.appended)
        held = self.machine.hold
        try:
            self.machine.commit(group, self.next_offset, member=member, generation=generation)
        except KafkaError:
            return
        if not held:
            assert self.machine.committed(group) == self.next_offset
        else:
            assert len(self.machine.appended) == before + 1

    def leave(self) -> None:
        if self.joined:
            group, member = self.rng.choice(sorted(self.joined))
            self.machine.leave(group, member)

    def pass_time(self) -> None:
        self.machine.advance(self.rng.choice((100, 3_000, 9_000, 61_000)))

    def expire(self) -> None:
        if self.rng.random() < 0.2:
            for group in list(self.machine.state.groups.values()):
                self.machine.submit(removal.expire_group(self.machine.state, group, MAX_BATCH_BYTES).outcome)

    # ---- what the log does -----------------------------------------------------------------------------------------

    def hold(self) -> None:
        self.machine.hold = True

    def decide(self) -> None:
        self.machine.decide()
        self.machine.hold = False

    def fail(self) -> None:
        self.machine.decide(ErrorCode.NOT_COORDINATOR)

    # ---- what is watched -------------------------------------------------------------------------------------------

    def members(self, group: str) -> list[str]:
        found = self.machine.state.groups.get(group)
        return [] if found is None else list(found.members)

    def park(self, kind: str, group: str, generation: int, reply: Reply) -> None:
        self.parked.append((kind, group, generation, reply))

    def hear_answers(self) -> None:
        waiting = []
        for kind, group, generation, reply in self.parked:
            if reply.response is None:
                waiting.append((kind, group, generation, reply))
            elif reply.error is not ErrorCode.NONE:
                continue
            elif kind == "join":
                self.hear_join(group, reply)
            else:
                self.hear_sync(kind.removeprefix("sync "), group, generation, reply)
        self.parked = waiting

    def hear_join(self, group: str, reply: Reply) -> None:
        response = reply.response
        assert response.protocol_name in ("range", "sticky")
        self.joined[group, response.member_id] = (response.generation_id, response.leader)

    def hear_sync(self, member: str, group: str, generation: int, reply: Reply) -> None:
        assignment = reply.response.assignment
        known = self.assigned.setdefault((group, generation, member), assignment)
        assert known == assignment, "one generation gave a member two assignments"
        if assignment:
            assert assignment.startswith(f"{generation}:".encode()) or b"static" in assignment

    def check(self) -> None:
        for group in self.machine.state.groups.values():
            waiting = sum(member.join_reply is not None for member in group.members.values())
            assert group.awaiting_join_count == waiting
            assert not group.pending_join_member_ids & group.members.keys()
            assert (group.leader_id in group.members) == bool(group.members)
            statics = {m.group_instance_id: m.member_id for m in group.members.values() if m.group_instance_id}
            assert group.static_members == statics
            counts: dict[str, int] = {}
            for member in group.members.values():
                for name, _ in member.protocols:
                    counts[name] = counts.get(name, 0) + 1
                if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.DEAD):
                    assert member.sync_reply is None
                if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                    assert member.join_reply is None or group.state is GroupState.STABLE
            assert counts == group.supported_protocols
            if group.state is GroupState.EMPTY:
                assert not group.members
        self.check_memory()

    def check_memory(self) -> None:
        """What is counted is what is there: members, pending members, and records that are being appended."""
        state = self.machine.state
        appended_bytes = sum(
            len(record.value) for outcome in self.machine.appended if outcome.is_parked for record in outcome.records
        )
        counted = 0
        for group in state.groups.values():
            counted += sum(member.size_bytes for member in group.members.values())
            counted += sum(map(pending_bytes, group.pending_join_member_ids))
            assert group.memory is state.memory
        assert state.memory.held_bytes == sum(group.held_bytes for group in state.groups.values())
        # A group that is gone meanwhile takes its part of what is being appended with it.
        assert counted <= state.memory.held_bytes <= counted + appended_bytes
        # Records of its members are refused ahead by their assignments alone.
        assert state.memory.held_bytes <= state.memory.limit_bytes + appended_bytes

    def check_reload(self) -> None:
        """Replaying the log gives the offsets as they are, and the groups that are at rest."""
        reloaded = persisted(Machine(self.machine.log).state)
        current = persisted(self.machine.state)
        assert reloaded["offsets"] == current["offsets"]
        assert reloaded["groups"].keys() == current["groups"].keys()
        for group_id, group in self.machine.state.groups.items():
            if group.state is GroupState.STABLE and not group.awaiting_join_count:
                assert reloaded["groups"][group_id] == current["groups"][group_id]
            assert reloaded["groups"][group_id][1] <= group.generation_id


@pytest.mark.parametrize("seed", range(40))
def test_invariants_under_random_load(seed: int) -> None:
    Driver(seed).run(300)
