"""The state of one coordinator shard, shared by the modules that move it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Protocol

from pybroker.coordinator.group.model.group import ClassicGroup
from pybroker.coordinator.group.model.member import ClassicGroupMember
from pybroker.coordinator.group.model.memory import GroupMemory
from pybroker.coordinator.group.model.offset_store import OffsetStore, PartitionKey
from pybroker.coordinator.group.model.settings import GroupSettings
from pybroker.coordinator.group.model.state import GroupState
from pybroker.coordinator.timer import TimerQueue

#: Kinds of timer keys: (SESSION, group id, member id), (JOIN, group id), (SYNC, group id).
SESSION = 0
JOIN = 1
SYNC = 2


class Clock(Protocol):
    """Monotonic time for deadlines, wall time for what is written."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


def random_suffix() -> str:
    """The random part of a member id, as the Java client's users know it."""
    return str(uuid.uuid4())


class ShardState:
    """Groups, offsets and deadlines of one `__consumer_offsets` partition.

    Deterministic: time comes from `clock`, the random part of member ids from `new_suffix`. `in_flight_commits` counts
    offset commits per group that are appended but not yet committed; expiry keeps its hands off such a group.
    `uncommitted` has the offsets that an earlier leader's records change which are not known to be committed.
    `memory` is the broker's, shared by all shards; groups come and go by `put_group` and `drop_group` for its sake.
    """

    __slots__ = (
        "clock",
        "groups",
        "in_flight_commits",
        "memory",
        "new_suffix",
        "offsets",
        "settings",
        "timers",
        "uncommitted",
    )

    def __init__(
        self,
        settings: GroupSettings,
        clock: Clock,
        new_suffix: Callable[[], str] = random_suffix,
        memory: GroupMemory | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.new_suffix = new_suffix
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self.timers = TimerQueue()
        self.in_flight_commits: dict[str, int] = {}
        self.uncommitted: set[PartitionKey] = set()
        self.memory = memory or GroupMemory(settings.members_max_bytes)

    def put_group(self, group: ClassicGroup) -> None:
        """Take a group in, in the place of one of that name."""
        self.drop_group(group.group_id)
        self.groups[group.group_id] = group
        group.attach(self.memory)

    def drop_group(self, group_id: str) -> None:
        """Forget a group, if there is one of that name."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.detach()

    def release_memory(self) -> None:
        """Nothing of this state counts any more: it is about to be dropped as a whole."""
        for group in self.groups.values():
            group.detach()

    def transition(self, group: ClassicGroup, target: GroupState) -> None:
        group.transition_to(target, self.clock.wall_ms())

    def restart_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """The member has shown life: count its session timeout from now."""
        self.timers.schedule(
            (SESSION, group.group_id, member.member_id), self.clock.monotonic_ms() + member.session_timeout_ms
        )
