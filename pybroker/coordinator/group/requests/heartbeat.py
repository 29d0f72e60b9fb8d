"""Heartbeat: a member is alive, and learns whether it has to rejoin. The most frequent request of all groups."""

from __future__ import annotations

from pybroker.coordinator.group.model.shard_state import ShardState
from pybroker.coordinator.group.model.state import GroupState
from pybroker.protocol.errors import ErrorCode, KafkaError


def heartbeat(
    state: ShardState, group_id: str, generation_id: int, member_id: str, group_instance_id: str | None
) -> ErrorCode:
    """Restart the member's session; NONE, or REBALANCE_IN_PROGRESS, or what is wrong with the member."""
    group = state.groups.get(group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        group.validate_member(member_id, group_instance_id)
    except KafkaError as error:
        return error.code
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    state.restart_session(group, group.members[member_id])
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
