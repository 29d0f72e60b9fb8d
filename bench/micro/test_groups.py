"""Members that join a classic group, in the coordinator's state machine alone: no sockets, no log, no clock."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from pybroker.coordinator.group import shard
from pybroker.coordinator.group.log import replay
from pybroker.coordinator.group.model.settings import GroupSettings
from pybroker.coordinator.group.model.shard_state import ShardState
from pybroker.coordinator.group.model.state import GroupState
from pybroker.coordinator.group.requests.join import Join, join
from pybroker.coordinator.group.requests.sync import Sync, sync
from pybroker.coordinator.outcome import Outcome
from pybroker.protocol.errors import ErrorCode

_GROUP = "group"
_TOPIC = b"orders"
_SUBSCRIPTION = b"\0\1\0\0\0\1" + len(_TOPIC).to_bytes(2, "big") + _TOPIC + b"\xff\xff\xff\xff\0\0\0\0"
_SETTLED_MS = 120_000


class _Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class _Shard:
    """A shard whose appends are committed at once."""

    def __init__(self) -> None:
        numbers = count()
        self.clock = _Clock()
        self.state = ShardState(GroupSettings(), self.clock, lambda: f"{next(numbers):04d}")
        self._offset = 0

    def submit(self, outcome: Outcome) -> None:
        """Replay its records, and go on with what waits for them."""
        for record in outcome.records:
            if record.change is not None:
                replay.apply(self.state, record.change, self._offset)
            self._offset += 1
        if outcome.on_append is not None:
            self.submit(outcome.on_append(ErrorCode.NONE))

    def join(self, member_id: str) -> list[Any]:
        """The list that the response will be put into."""
        replies: list[Any] = []
        request = Join(
            api_version=9,
            group_id=_GROUP,
            member_id=member_id,
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=600_000,
            rebalance_timeout_ms=600_000,
            protocol_type="consumer",
            protocols=[("range", _SUBSCRIPTION)],
            reason=None,
            reply=replies.append,
        )
        self.submit(join(self.state, request))
        return replies

    def settle(self) -> None:
        """Let the first rebalance's delay pass."""
        self.clock.now_ms += _SETTLED_MS
        while (expired := self.state.timers.pop_expired(self.clock.now_ms)) is not None:
            self.submit(shard.on_timer(self.state, *expired))


def _group_of(member_count: int) -> ShardState:
    """From nothing to a stable group: each member's two joins, the rebalance, everybody's sync."""
    machine = _Shard()
    members = [machine.join("")[0].member_id for _ in range(member_count)]
    joined = [machine.join(member) for member in members]
    while not joined[0]:
        machine.settle()
    leader, generation = joined[0][0].leader, joined[0][0].generation_id
    assignments = {member: member.encode() for member in members}
    for member in sorted(members, key=lambda each: each == leader):
        own = assignments if member == leader else {}
        machine.submit(sync(machine.state, Sync(_GROUP, generation, member, None, "consumer", "range", own, _ignore)))
    return machine.state


def _ignore(response: Any) -> None:
    assert response.error_code == ErrorCode.NONE


@pytest.mark.parametrize("members", [1, 10, 100])
def test_group_join(benchmark: Any, members: int) -> None:
    benchmark.extra_info.update(calls=members)
    state = benchmark.pedantic(_group_of, args=(members,), rounds=20, warmup_rounds=2)
    group = state.groups[_GROUP]
    assert group.state is GroupState.STABLE
    assert len(group.members) == members
