"""LeaveGroup: members go by themselves, or an administrator sends static ones away by their instance ids."""

from __future__ import annotations

import logging

from pybroker.coordinator.group.model.group import ClassicGroup, complete_sync
from pybroker.coordinator.group.model.shard_state import SESSION, ShardState
from pybroker.coordinator.group.model.state import GroupState
from pybroker.coordinator.group.requests.rebalance import maybe_complete_join, prepare_or_complete
from pybroker.coordinator.outcome import NOTHING, Outcome
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


def leave(
    state: ShardState, group_id: str, identities: list[m.LeaveGroupRequest.MemberIdentity]
) -> tuple[m.LeaveGroupResponse, Outcome]:
    """Remove each of `identities` that is there; the rest of the group rebalances once for all of them."""
    group = state.groups.get(group_id)
    if group is not None and group.state is GroupState.DEAD:
        return m.LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE), NOTHING
    gone: list[str] = []
    responses = []
    for identity in identities:
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _remove(state, group, identity)
        if error is ErrorCode.NONE:
            gone.append(identity.member_id or identity.group_instance_id or "")
        responses.append(
            m.LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
            )
        )
    outcome = NOTHING
    if group is not None and gone:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            outcome = prepare_or_complete(state, group, f"left: {', '.join(gone)}")
        elif group.state is GroupState.PREPARING_REBALANCE:
            outcome = maybe_complete_join(state, group)
    return m.LeaveGroupResponse(members=responses), outcome


def _remove(state: ShardState, group: ClassicGroup, identity: m.LeaveGroupRequest.MemberIdentity) -> ErrorCode:
    member_id: str | None = identity.member_id
    instance_id = identity.group_instance_id
    if not member_id:
        member_id = None if instance_id is None else group.static_members.get(instance_id)
        if member_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id not in group.pending_join_member_ids:
        try:
            group.validate_member(member_id, instance_id)
        except KafkaError as error:
            return error.code
    member = group.members.get(member_id)
    if member is not None:
        group.complete_join(member, m.JoinGroupResponse(member_id="", error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        complete_sync(member, m.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member_id)
    state.timers.cancel((SESSION, group.group_id, member_id))
    logger.info(
        "group %s: member %s left (client's reason: %s)", group.group_id, member_id, identity.reason or "none given"
    )
    return ErrorCode.NONE
