"""SyncGroup: the leader hands the assignment in, everyone gets his part of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pybroker.coordinator.group.log import records
from pybroker.coordinator.group.model.group import ClassicGroup
from pybroker.coordinator.group.model.member import SyncReply
from pybroker.coordinator.group.model.memory import assignments_bytes
from pybroker.coordinator.group.model.shard_state import SYNC, ShardState
from pybroker.coordinator.group.model.state import GroupState
from pybroker.coordinator.group.requests.rebalance import prepare_or_complete, reset_assignments, set_assignments
from pybroker.coordinator.outcome import NOTHING, Outcome
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Sync:
    """A SyncGroup request, as the state machine needs it; `reply` answers it, at once or later."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]
    reply: SyncReply

    def refuse(self, error: ErrorCode) -> Outcome:
        self.reply(m.SyncGroupResponse(error_code=error))
        return NOTHING


def sync(state: ShardState, request: Sync) -> Outcome:
    """Park the request until the leader's assignment is stored; the leader's own one stores it."""
    group = state.groups.get(request.group_id)
    if group is None or group.state is GroupState.EMPTY:
        return request.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    try:
        _validate(group, request)
    except KafkaError as error:
        return request.refuse(error.code)
    if group.state is GroupState.PREPARING_REBALANCE:
        return request.refuse(ErrorCode.REBALANCE_IN_PROGRESS)

    is_assigning = group.leader_id == request.member_id and group.state is not GroupState.STABLE
    # Twice: once with the members, once in the record that is being appended.
    if is_assigning and not state.memory.has_room(2 * assignments_bytes(request.assignments)):
        return request.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
    group.pending_sync_member_ids.discard(request.member_id)
    if not group.pending_sync_member_ids:
        state.timers.cancel((SYNC, group.group_id))
    member = group.members[request.member_id]
    if group.state is GroupState.STABLE:
        request.reply(
            m.SyncGroupResponse(
                protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
            )
        )
        return NOTHING
    if member.sync_reply is not None:
        # The client gave up on its earlier request and asks again: only the newest one is of use to it.
        member.sync_reply(m.SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_reply = request.reply
    if group.leader_id != request.member_id:
        return NOTHING
    assignments = {member_id: request.assignments.get(member_id, b"") for member_id in group.members}
    missing = [member_id for member_id in group.members if member_id not in request.assignments]
    if missing:
        logger.warning(
            "group %s: the leader of generation %d assigned nothing to %s",
            group.group_id,
            group.generation_id,
            ", ".join(missing),
        )
    record = records.group_metadata(group, assignments)
    stored = group.hold_record(record, _assignment_stored(state, group, assignments))
    return Outcome([record], stored, is_parked=True)


def _validate(group: ClassicGroup, request: Sync) -> None:
    if group.state is GroupState.DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _differ(given: str | None, actual: str | None) -> bool:
    return given is not None and actual is not None and given != actual


def _assignment_stored(
    state: ShardState, group: ClassicGroup, assignments: Mapping[str, bytes]
) -> Callable[[ErrorCode], Outcome]:
    generation_id = group.generation_id

    def on_append(error: ErrorCode) -> Outcome:
        if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
            # Somebody joined or left meanwhile; the next generation is under way and they have been told.
            return NOTHING
        if error is not ErrorCode.NONE:
            reset_assignments(state, group, error)
            return prepare_or_complete(state, group, f"the assignment could not be stored: {error.name}")
        set_assignments(state, group, assignments)
        state.transition(group, GroupState.STABLE)
        return NOTHING

    return on_append
