"""JoinGroup: a member asks to be in the next generation.

KIP-394: a dynamic member first gets an id (MEMBER_ID_REQUIRED) and joins with it. KIP-345: a static member is known by
its instance id, and whoever joins under it without a member id takes the place of the member before. KIP-814: a static
leader that comes back into a Stable group is told to skip the assignment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pybroker.coordinator.group.log import records
from pybroker.coordinator.group.model.group import ClassicGroup, complete_sync
from pybroker.coordinator.group.model.member import ClassicGroupMember, JoinReply
from pybroker.coordinator.group.model.memory import MEMBER_BYTES, pending_bytes, protocols_bytes
from pybroker.coordinator.group.model.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from pybroker.coordinator.group.model.shard_state import JOIN, SESSION, SYNC, ShardState
from pybroker.coordinator.group.model.state import GroupState
from pybroker.coordinator.group.requests.rebalance import (
    join_response,
    maybe_complete_join,
    prepare,
    prepare_or_complete,
    remove_pending,
)
from pybroker.coordinator.outcome import NOTHING, Outcome
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.runtime import MAX_STRING_BYTES, cut_utf8

logger = logging.getLogger(__name__)

_MEMBER_ID_REQUIRED_VERSION = 4
_SKIP_ASSIGNMENT_VERSION = 9


@dataclass(slots=True)
class Join:
    """A JoinGroup request, as the state machine needs it; `reply` answers it, at once or later."""

    group_id: str
    api_version: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    reason: str | None
    reply: JoinReply

    def refuse(self, error: ErrorCode, member_id: str) -> Outcome:
        self.reply(m.JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None))
        return NOTHING


def join(state: ShardState, request: Join) -> Outcome:
    """Take the request into the group, or refuse it; the group is made when a member without id names a new one."""
    group = state.groups.get(request.group_id)
    is_new_group = group is None
    if group is None:
        if request.member_id:
            return request.refuse(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        if not state.memory.has_room(_first_bytes(request)):
            return request.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        group = ClassicGroup(request.group_id, GroupState.EMPTY, state.clock.wall_ms())
        state.put_group(group)
        stored = records.new_group_metadata(group)

    if not _has_room(state, group, request.member_id):
        group.remove(request.member_id)
        outcome = request.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    elif not request.member_id:
        outcome = _join_new(state, group, request)
    else:
        outcome = _join_existing(state, group, request)

    if is_new_group:
        assert not outcome.records, "the first join of a group stores nothing by itself"
        return Outcome([stored], _drop_unstored_group(state, group))
    return outcome


def _first_bytes(request: Join) -> int:
    """The memory that the first request of a new member holds. Where there is no room for it, no group is made
    either."""
    if request.group_instance_id is None and request.api_version >= _MEMBER_ID_REQUIRED_VERSION:
        return pending_bytes(request.client_id)
    return MEMBER_BYTES + protocols_bytes(request.protocols)


def _has_room(state: ShardState, group: ClassicGroup, member_id: str) -> bool:
    max_size = state.settings.max_size
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        # Those who wait count, not those who were there: when the limit has been lowered the last to rejoin stay out.
        return (member is not None and member.join_reply is not None) or group.awaiting_join_count < max_size
    return member is not None or len(group.members) < max_size


def _join_new(state: ShardState, group: ClassicGroup, request: Join) -> Outcome:
    if group.state is GroupState.DEAD:
        return request.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    if not group.supports_protocols(request.protocol_type, (name for name, _ in request.protocols)):
        return request.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    instance_id = request.group_instance_id
    prefix = request.client_id if instance_id is None else instance_id
    member_id = _new_member_id(prefix, state.new_suffix())
    if instance_id is not None:
        if instance_id in group.static_members:
            return _replace_static_member(state, group, request, member_id)
        return _add_member(state, group, request, member_id)
    if request.api_version < _MEMBER_ID_REQUIRED_VERSION:
        return _add_member(state, group, request, member_id)
    if not state.memory.has_room(pending_bytes(member_id)):
        return request.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    group.add_pending(member_id)
    state.timers.schedule((SESSION, group.group_id, member_id), state.clock.monotonic_ms() + request.session_timeout_ms)
    return request.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _new_member_id(prefix: str, suffix: str) -> str:
    """A prefix that is as long as a string can be leaves no room for what makes the id unique, so it is cut."""
    room_bytes = MAX_STRING_BYTES - len(suffix) - 1
    return f"{cut_utf8(prefix.encode(), room_bytes).decode()}-{suffix}"


def _join_existing(state: ShardState, group: ClassicGroup, request: Join) -> Outcome:
    member_id = request.member_id
    if group.state is GroupState.DEAD:
        return request.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    if not group.supports_protocols(request.protocol_type, (name for name, _ in request.protocols)):
        return request.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if member_id in group.pending_join_member_ids:
        if request.group_instance_id is not None:
            # An id given to a dynamic member cannot be a static one's.
            return request.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, member_id)
        return _add_member(state, group, request, member_id)
    try:
        group.validate_member(member_id, request.group_instance_id)
    except KafkaError as error:
        return request.refuse(error.code, member_id)

    member = group.members[member_id]
    is_leader = group.leader_id == member_id
    if group.state is GroupState.PREPARING_REBALANCE:
        return _rejoin(state, group, member, request, "member rejoins")
    if group.state is GroupState.COMPLETING_REBALANCE:
        if member.protocols != request.protocols:
            return _rejoin(state, group, member, request, "member changed its metadata")
        # It did not get the answer to its JoinGroup: tell it again.
        request.reply(join_response(group, member_id, with_members=is_leader))
        return NOTHING
    if group.state is GroupState.STABLE:
        if is_leader:
            return _rejoin(state, group, member, request, "leader rejoins")
        if member.protocols != request.protocols:
            return _rejoin(state, group, member, request, "member changed its metadata")
        request.reply(join_response(group, member_id, with_members=False))
        return NOTHING
    return request.refuse(ErrorCode.UNKNOWN_MEMBER_ID, member_id)


def _has_memory(state: ShardState, request: Join, member: ClassicGroupMember) -> bool:
    """Whether a member may have the request's protocols: always if these take no more than its present ones."""
    return state.memory.has_room(protocols_bytes(request.protocols) - protocols_bytes(member.protocols))


def _rejoin(state: ShardState, group: ClassicGroup, member: ClassicGroupMember, request: Join, reason: str) -> Outcome:
    if not _has_memory(state, request, member):
        return request.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    group.update_member(
        member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, request.reply
    )
    return prepare_or_complete(state, group, _reason(f"{reason}: {member.member_id}", request))


def _add_member(state: ShardState, group: ClassicGroup, request: Join, member_id: str) -> Outcome:
    member = ClassicGroupMember(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        request.protocols,
    )
    member.is_new = True
    if not state.memory.has_room(member.size_bytes):
        request.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        return remove_pending(state, group, member_id) if member_id in group.pending_join_member_ids else NOTHING
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_added = True
    group.add(member, request.reply)
    # It cannot send heartbeats before it is answered. Should its client have gone meanwhile nobody would tell us.
    state.timers.schedule((SESSION, group.group_id, member_id), state.clock.monotonic_ms() + NEW_MEMBER_JOIN_TIMEOUT_MS)
    return prepare_or_complete(state, group, _reason(f"new member {member_id}", request))


# ---- static members ----------------------------------------------------------------------------------------------


def _replace_static_member(state: ShardState, group: ClassicGroup, request: Join, member_id: str) -> Outcome:
    """A static member is back under a new id; a Stable group goes on as it was unless the protocol changes by it."""
    assert request.group_instance_id is not None
    old = group.members[group.static_members[request.group_instance_id]]
    if not _has_memory(state, request, old):
        return request.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    old_leader_id = group.leader_id
    member = _with_id(old, member_id)
    group.replace_static_member(request.group_instance_id, member)
    state.restart_session(group, member)
    group.update_member(
        member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, request.reply
    )
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may be assigning to the old id already.
        return prepare(state, group, _reason(f"static member {member_id} replaced {old.member_id}", request))
    if group.state is not GroupState.STABLE:
        return maybe_complete_join(state, group)
    if group.select_protocol() != group.protocol_name:
        return prepare_or_complete(state, group, _reason(f"static member {member_id} changes the protocol", request))
    assignments = {other.member_id: other.assignment for other in group.members.values()}
    record = records.group_metadata(group, assignments)
    stored = group.hold_record(record, _static_member_stored(state, group, request, old, member, old_leader_id))
    return Outcome([record], stored, is_parked=True)


def _static_member_stored(
    state: ShardState,
    group: ClassicGroup,
    request: Join,
    old: ClassicGroupMember,
    member: ClassicGroupMember,
    old_leader_id: str | None,
) -> Callable[[ErrorCode], Outcome]:
    generation_id = group.generation_id

    def on_append(error: ErrorCode) -> Outcome:
        if group.members.get(member.member_id) is not member:
            # It left, or was replaced in turn, and has been answered then.
            return NOTHING
        if group.state is not GroupState.STABLE or group.generation_id != generation_id:
            # Another rebalance has begun; its JoinGroup is parked and counts for that one.
            return NOTHING
        if error is not ErrorCode.NONE:
            _revert_static_member(state, group, request, old, member)
            refused = join_response(group, "", with_members=False)
            refused.error_code = error
            refused.leader = old_leader_id or ""
            request.reply(refused)
            return NOTHING
        is_leader = group.leader_id == member.member_id
        if request.api_version >= _SKIP_ASSIGNMENT_VERSION:
            response = join_response(group, member.member_id, with_members=is_leader, skip_assignment=is_leader)
        else:
            # Old clients cannot skip: naming the former leader keeps this one from assigning.
            response = join_response(group, member.member_id, with_members=False)
            response.leader = old_leader_id or ""
        group.complete_join(member, response)
        return NOTHING

    return on_append


def _revert_static_member(
    state: ShardState, group: ClassicGroup, request: Join, old: ClassicGroupMember, member: ClassicGroupMember
) -> None:
    """The replacement could not be stored: the member before has the instance id again."""
    assert request.group_instance_id is not None
    logger.warning(
        "group %s: could not store static member %s, keeping %s", group.group_id, member.member_id, old.member_id
    )
    group.update_member(member, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms, None)
    restored = _with_id(old, old.member_id)
    restored.assignment = member.assignment
    group.replace_static_member(request.group_instance_id, restored)
    state.restart_session(group, restored)


def _with_id(member: ClassicGroupMember, member_id: str) -> ClassicGroupMember:
    return ClassicGroupMember(
        member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        member.protocol_type,
        member.protocols,
        member.assignment,
    )


def _drop_unstored_group(state: ShardState, group: ClassicGroup) -> Callable[[ErrorCode], Outcome]:
    def on_append(error: ErrorCode) -> Outcome:
        if error is ErrorCode.NONE or state.groups.get(group.group_id) is not group:
            return NOTHING
        logger.warning("group %s: could not store the new group: %s", group.group_id, error.name)
        state.drop_group(group.group_id)
        group.transition_to(GroupState.DEAD, state.clock.wall_ms())
        # Timers go by names: they must not reach a group that gets this name next.
        state.timers.cancel((JOIN, group.group_id))
        state.timers.cancel((SYNC, group.group_id))
        for member_id in (*group.members, *group.pending_join_member_ids):
            state.timers.cancel((SESSION, group.group_id, member_id))
        for member in group.members.values():
            complete_sync(member, m.SyncGroupResponse(error_code=error))
            group.complete_join(member, m.JoinGroupResponse(error_code=error, protocol_name=None))
        return NOTHING

    return on_append


def _reason(what: str, request: Join) -> str:
    return f"{what} (client's reason: {request.reason or 'none given'})"
