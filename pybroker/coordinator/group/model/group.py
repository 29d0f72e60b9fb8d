"""A classic group: its members, its generation and the rules of who may join it.

Pure data, changed only on the asyncio loop thread by the modules beside it. A GroupMetadataValue record survives a
restart: generation, protocol, leader, members and their assignments. Everything else (parked requests, pending members,
the state between two generations) is soft, and the members themselves rebuild it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pybroker.coordinator.group.model import consumer_protocol
from pybroker.coordinator.group.model.memory import GroupMemory, pending_bytes
from pybroker.coordinator.group.model.state import VALID_PREVIOUS_STATES, GroupState
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pybroker.coordinator.group.model.member import ClassicGroupMember, JoinReply
    from pybroker.coordinator.outcome import CoordinatorRecord, Outcome

logger = logging.getLogger(__name__)


class ClassicGroup:
    """One group.

    Invariants: a member is in `members` or in `pending_join_member_ids`, never in both. `leader_id` names a member
    unless the group has none. `static_members` maps exactly the members that have an instance id. `awaiting_join_count`
    is the number of members whose JoinGroup is parked. `held_bytes` counts members, pending members and records that
    are being appended, and is part of `memory.held_bytes` while the group is in a shard.
    """

    __slots__ = (
        "awaiting_join_count",
        "generation_id",
        "group_id",
        "held_bytes",
        "leader_id",
        "members",
        "memory",
        "new_member_added",
        "pending_join_member_ids",
        "pending_sync_member_ids",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "supported_protocols",
    )

    def __init__(
        self,
        group_id: str,
        state: GroupState,
        state_timestamp_ms: int,
        generation_id: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join_member_ids: set[str] = set()
        self.pending_sync_member_ids: set[str] = set()
        self.supported_protocols: dict[str, int] = {}
        self.awaiting_join_count = 0
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self.held_bytes = 0
        self.memory: GroupMemory | None = None

    # ---- memory --------------------------------------------------------------------------------------------------

    def attach(self, memory: GroupMemory) -> None:
        """The group is in a shard from now on."""
        assert self.memory is None
        self.memory = memory
        memory.held_bytes += self.held_bytes

    def detach(self) -> None:
        """The group is in no shard any more, and none of what it still has counts."""
        if self.memory is not None:
            self.memory.held_bytes -= self.held_bytes
            self.memory = None

    def hold(self, more_bytes: int) -> None:
        """It takes so much more, or less."""
        self.held_bytes += more_bytes
        assert self.held_bytes >= 0
        if self.memory is not None:
            self.memory.held_bytes += more_bytes

    def count(self, member: ClassicGroupMember) -> None:
        """The member is new, or what it takes has changed."""
        size_bytes = member.size_bytes
        self.hold(size_bytes - member.held_bytes)
        member.held_bytes = size_bytes

    def _uncount(self, member: ClassicGroupMember) -> None:
        self.hold(-member.held_bytes)
        member.held_bytes = 0

    def hold_record(
        self, record: CoordinatorRecord, on_append: Callable[[ErrorCode], Outcome]
    ) -> Callable[[ErrorCode], Outcome]:
        """`on_append` for an outcome with a record of all members, which takes memory until the append is decided."""
        size_bytes = len(record.value or b"")
        self.hold(size_bytes)

        def decided(error: ErrorCode) -> Outcome:
            self.hold(-size_bytes)
            return on_append(error)

        return decided

    # ---- members -------------------------------------------------------------------------------------------------

    def add(self, member: ClassicGroupMember, join_reply: JoinReply | None = None) -> None:
        """Take a member in; its protocol type and at least one protocol must suit the group."""
        if member.group_instance_id is not None:
            if member.group_instance_id in self.static_members:
                raise ValueError(f"instance {member.group_instance_id!r} is already in group {self.group_id!r}")
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.count(member)
        self._count_protocols(member, 1)
        member.join_reply = join_reply
        if join_reply is not None:
            self.awaiting_join_count += 1
        self._remove_pending(member.member_id)

    def add_pending(self, member_id: str) -> None:
        """A member has been given its id, and is to join with it."""
        assert member_id not in self.members
        if member_id not in self.pending_join_member_ids:
            self.pending_join_member_ids.add(member_id)
            self.hold(pending_bytes(member_id))

    def _remove_pending(self, member_id: str) -> None:
        if member_id in self.pending_join_member_ids:
            self.pending_join_member_ids.remove(member_id)
            self.hold(-pending_bytes(member_id))

    def remove(self, member_id: str) -> None:
        """Forget a member or a pending one; the longest standing member becomes leader if it led."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._uncount(member)
            self._count_protocols(member, -1)
            if member.join_reply is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self._remove_pending(member_id)
        self.pending_sync_member_ids.discard(member_id)

    def replace_static_member(self, group_instance_id: str, member: ClassicGroupMember) -> None:
        """Put `member` in the place of the member that had its instance id; the old one's requests are fenced."""
        old_member_id = self.static_members[group_instance_id]
        old = self.members.pop(old_member_id)
        self._uncount(old)
        self.count(member)
        self.complete_join(
            old,
            m.JoinGroupResponse(member_id=old_member_id, protocol_name=None, error_code=ErrorCode.FENCED_INSTANCE_ID),
        )
        complete_sync(old, m.SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        self.members[member.member_id] = member
        if self.leader_id == old_member_id:
            self.leader_id = member.member_id
        self.static_members[group_instance_id] = member.member_id

    def update_member(
        self,
        member: ClassicGroupMember,
        protocols: list[tuple[str, bytes]],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        join_reply: JoinReply | None,
    ) -> None:
        """Take over what a repeated JoinGroup says, and park it (or take the parked one off with None)."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self.count(member)
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        if join_reply is not None:
            # A request that is still parked belongs to a connection its client has given up.
            self.complete_join(
                member,
                m.JoinGroupResponse(
                    member_id=member.member_id, protocol_name=None, error_code=ErrorCode.REBALANCE_IN_PROGRESS
                ),
            )
            self.awaiting_join_count += 1
        elif member.join_reply is not None:
            self.awaiting_join_count -= 1
        member.join_reply = join_reply

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another member took the instance id over."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def _count_protocols(self, member: ClassicGroupMember, step: int) -> None:
        counts = self.supported_protocols
        # Once for each name, even if the member repeats it: a count above that of the members fits nobody.
        for name in {name for name, _ in member.protocols}:
            counts[name] = counts.get(name, 0) + step
            if counts[name] == 0:
                del counts[name]

    # ---- protocols -----------------------------------------------------------------------------------------------

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these could be in the group: all members must share at least one protocol."""
        names = list(names)
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        member_count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.supported_protocols.get(name, 0) == member_count for name in names
        )

    def select_protocol(self) -> str:
        """The protocol most members prefer among those that all support."""
        member_count = len(self.members)
        candidates = {name for name, count in self.supported_protocols.items() if count == member_count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == consumer_protocol.PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may be reading `topic`; when that is unknown a group of consumers is taken to be."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def refresh_subscribed_topics(self) -> None:
        """Read the topics out of the members' metadata; None when it is not that of consumers or not readable."""
        self.subscribed_topics = None
        if not self.uses_consumer_protocol:
            return
        if not self.members:
            self.subscribed_topics = frozenset()
            return
        if self.protocol_name is None:
            return
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(consumer_protocol.subscribed_topics(member.metadata(self.protocol_name)))
            except ValueError as error:
                logger.warning(
                    "group %s: cannot read the subscription of member %s: %s; offsets of this group are "
                    "not deleted while it has members",
                    self.group_id,
                    member.member_id,
                    error,
                )
                return
        self.subscribed_topics = frozenset(topics)

    # ---- rebalance -----------------------------------------------------------------------------------------------

    def transition_to(self, state: GroupState, now_wall_ms: int) -> None:
        """Move on; a transition that the table in `state.py` does not have is a defect."""
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise AssertionError(f"group {self.group_id!r} cannot go from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_wall_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    @property
    def has_all_members_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_join_member_ids

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is a member that has rejoined; False when nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                logger.info(
                    "group %s: leader %s did not rejoin in time, %s leads now",
                    self.group_id,
                    self.leader_id,
                    member.member_id,
                )
                self.leader_id = member.member_id
                return True
        return False

    def init_next_generation(self, now_wall_ms: int) -> None:
        """Count the generation up and choose its protocol; Empty without members, else CompletingRebalance."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.refresh_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_wall_ms)
        self.pending_sync_member_ids.clear()

    def join_response_members(self) -> list[m.JoinGroupResponse.JoinGroupResponseMember]:
        """All members with their metadata for the chosen protocol, as only the leader is told."""
        assert self.protocol_name is not None
        return [
            m.JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    def complete_join(self, member: ClassicGroupMember, response: m.JoinGroupResponse) -> bool:
        """Answer the member's parked JoinGroup; False when there is none."""
        reply = member.join_reply
        if reply is None:
            return False
        member.join_reply = None
        self.awaiting_join_count -= 1
        reply(response)
        return True

    # ---- what others may do to it --------------------------------------------------------------------------------

    def validate_offset_commit(self, member_id: str, group_instance_id: str | None, generation_id: int) -> None:
        """Raise the error that keeps this committer out, if any."""
        state = self.state
        if state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and state is GroupState.EMPTY:
            # Nobody manages the partitions through the group: a consumer that assigns them itself.
            return
        if generation_id >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            if generation_id != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_delete(self) -> None:
        """Raise NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND when it is going already."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def validate_offset_delete(self) -> None:
        """As `validate_delete`, but a live group of consumers may lose offsets of topics it does not read."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not GroupState.EMPTY and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def expiration_base(self) -> Callable[[int], int] | None:
        """From which moment retention of an offset counts, given its commit time; None: offsets do not expire now."""
        if self.protocol_type is None:
            return _commit_time
        if self.state is GroupState.EMPTY:
            emptied_ms = self.state_timestamp_ms
            return _commit_time if emptied_ms < 0 else lambda _commit_ms: emptied_ms
        if self.uses_consumer_protocol and self.subscribed_topics is not None and self.state is GroupState.STABLE:
            return _commit_time
        return None


def _commit_time(commit_timestamp_ms: int) -> int:
    return commit_timestamp_ms


def complete_sync(member: ClassicGroupMember, response: m.SyncGroupResponse) -> bool:
    """Answer the member's parked SyncGroup; False when there is none."""
    reply = member.sync_reply
    if reply is None:
        return False
    member.sync_reply = None
    reply(response)
    return True
