"""How a classic group gets from one generation to the next.

Every function takes the shard's state and returns an `Outcome`. Parked requests are answered through the members'
replies. The phases: `prepare` opens the join phase, and `complete_join` ends it and opens the sync phase, which
`sync.py` ends. The timers call the expiry functions when a phase or a session takes too long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pybroker.coordinator.group.log import records
from pybroker.coordinator.group.model.group import ClassicGroup, complete_sync
from pybroker.coordinator.group.model.member import ClassicGroupMember
from pybroker.coordinator.group.model.shard_state import JOIN, SESSION, SYNC, ShardState
from pybroker.coordinator.group.model.state import GroupState
from pybroker.coordinator.outcome import NOTHING, Outcome
from pybroker.observability.event_log import event
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


def prepare_or_complete(state: ShardState, group: ClassicGroup, reason: str) -> Outcome:
    """Open the join phase, or end it if it is open and everyone is there."""
    if group.can_rebalance:
        return prepare(state, group, reason)
    return maybe_complete_join(state, group)


def prepare(state: ShardState, group: ClassicGroup, reason: str) -> Outcome:
    """Ask all members to rejoin. The first rebalance of an Empty group waits a little for more members."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(state, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync_member_ids.clear()
    state.timers.cancel((SYNC, group.group_id))

    initial = group.state is GroupState.EMPTY
    if initial:
        delay_ms = state.settings.initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        state.timers.schedule((JOIN, group.group_id), state.clock.monotonic_ms() + delay_ms, (delay_ms, remaining_ms))
    state.transition(group, GroupState.PREPARING_REBALANCE)
    logger.info(
        "group %s: rebalance after generation %d: %s",
        group.group_id,
        group.generation_id,
        reason,
        extra=event("rebalance", group=group.group_id, generation=group.generation_id),
    )
    if initial:
        return NOTHING
    if group.has_all_members_joined:
        return complete_join(state, group)
    _schedule_join_end(state, group)
    return NOTHING


def maybe_complete_join(state: ShardState, group: ClassicGroup) -> Outcome:
    """End the join phase if everyone is there; an initial rebalance sits its delay out."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_members_joined
    ):
        return complete_join(state, group)
    return NOTHING


def complete_join(state: ShardState, group: ClassicGroup) -> Outcome:
    """End the join phase: drop dynamic members that did not come back, choose leader and protocol, answer everyone."""
    state.timers.cancel((JOIN, group.group_id))
    gone = [
        member.member_id
        for member in group.members.values()
        if member.join_reply is None and member.group_instance_id is None
    ]
    for member_id in gone:
        group.remove(member_id)
        state.timers.cancel((SESSION, group.group_id, member_id))
    if gone:
        logger.info("group %s: members that did not rejoin in time: %s", group.group_id, ", ".join(gone))

    if group.state is GroupState.DEAD:
        return NOTHING
    if group.members and not group.elect_joined_leader():
        # Only static members, none of them back: wait until they are, or until their sessions end.
        _schedule_join_end(state, group)
        return NOTHING

    group.init_next_generation(state.clock.wall_ms())
    if group.state is GroupState.EMPTY:
        logger.info("group %s: generation %d is empty", group.group_id, group.generation_id)
        return Outcome([records.group_metadata(group, {})], _log_failed_empty(group))
    logger.info("group %s: generation %d has %d members", group.group_id, group.generation_id, len(group.members))
    _answer_joins(state, group)
    state.timers.schedule(
        (SYNC, group.group_id), state.clock.monotonic_ms() + group.rebalance_timeout_ms, group.generation_id
    )
    return NOTHING


def join_response(
    group: ClassicGroup, member_id: str, *, with_members: bool, skip_assignment: bool = False
) -> m.JoinGroupResponse:
    """The answer that tells a member the present generation."""
    return m.JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=group.join_response_members() if with_members else [],
    )


def reset_assignments(state: ShardState, group: ClassicGroup, error: ErrorCode) -> None:
    """Take the assignments away and answer every parked SyncGroup with `error`."""
    for member in group.members.values():
        member.assignment = b""
        group.count(member)
    _answer_syncs(state, group, error)


def set_assignments(state: ShardState, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
    """Give every member its assignment and answer every parked SyncGroup."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        group.count(member)
    _answer_syncs(state, group, ErrorCode.NONE)


def remove_member(state: ShardState, group: ClassicGroup, member: ClassicGroupMember, reason: str) -> Outcome:
    """Throw a member out; the rest rebalance."""
    # The client of a parked JoinGroup may be alive after all: it starts over.
    group.complete_join(member, m.JoinGroupResponse(member_id="", error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        return prepare_or_complete(state, group, reason)
    return _complete_if_last_awaited(state, group)


def remove_pending(state: ShardState, group: ClassicGroup, member_id: str) -> Outcome:
    """A member that was given its id is not to be waited for any more."""
    group.remove(member_id)
    state.timers.cancel((SESSION, group.group_id, member_id))
    return _complete_if_last_awaited(state, group)


# ---- timers ------------------------------------------------------------------------------------------------------


def expire_join(state: ShardState, group: ClassicGroup, initial: tuple[int, int] | None) -> Outcome:
    """The join phase has lasted long enough; `initial` is (delay, remaining) ms of an Empty group's first one."""
    if initial is None:
        return complete_join(state, group)
    delay_ms, remaining_ms = initial
    if not group.new_member_added or remaining_ms == 0:
        return complete_join(state, group)
    group.new_member_added = False
    next_delay_ms = min(state.settings.initial_rebalance_delay_ms, remaining_ms)
    state.timers.schedule(
        (JOIN, group.group_id),
        state.clock.monotonic_ms() + next_delay_ms,
        (next_delay_ms, max(remaining_ms - delay_ms, 0)),
    )
    return NOTHING


def expire_sync(state: ShardState, group: ClassicGroup, generation_id: int) -> Outcome:
    """Members that have joined `generation_id` but did not send SyncGroup in time are thrown out."""
    if generation_id != group.generation_id or not group.pending_sync_member_ids:
        return NOTHING
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return NOTHING
    late = list(group.pending_sync_member_ids)
    for member_id in late:
        group.remove(member_id)
        state.timers.cancel((SESSION, group.group_id, member_id))
    return prepare(state, group, f"no SyncGroup in time from {', '.join(sorted(late))}")


def expire_session(state: ShardState, group: ClassicGroup, member_id: str) -> Outcome:
    """No sign of life from a member, or from one that was given its id and did not come back with it."""
    if group.state is GroupState.DEAD:
        return NOTHING
    if member_id in group.pending_join_member_ids:
        return remove_pending(state, group, member_id)
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat:
        return NOTHING
    logger.info("group %s: member %s sent no heartbeat for %d ms", group.group_id, member_id, member.session_timeout_ms)
    return remove_member(state, group, member, f"session of member {member_id} timed out")


# ---- helpers -----------------------------------------------------------------------------------------------------


def _complete_if_last_awaited(state: ShardState, group: ClassicGroup) -> Outcome:
    if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
        return complete_join(state, group)
    return NOTHING


def _schedule_join_end(state: ShardState, group: ClassicGroup) -> None:
    state.timers.schedule((JOIN, group.group_id), state.clock.monotonic_ms() + group.rebalance_timeout_ms)


def _answer_joins(state: ShardState, group: ClassicGroup) -> None:
    for member in group.members.values():
        is_leader = member.member_id == group.leader_id
        group.complete_join(member, join_response(group, member.member_id, with_members=is_leader))
        state.restart_session(group, member)
        member.is_new = False
        group.pending_sync_member_ids.add(member.member_id)


def _answer_syncs(state: ShardState, group: ClassicGroup, error: ErrorCode) -> None:
    ok = error is ErrorCode.NONE
    for member in group.members.values():
        response = m.SyncGroupResponse(
            error_code=error,
            protocol_type=group.protocol_type if ok else None,
            protocol_name=group.protocol_name if ok else None,
            assignment=member.assignment,
        )
        if complete_sync(member, response):
            # While the request was parked an expired session had no effect, so no deadline may be left.
            state.restart_session(group, member)


def _log_failed_empty(group: ClassicGroup) -> Callable[[ErrorCode], Outcome]:
    def on_append(error: ErrorCode) -> Outcome:
        if error is not ErrorCode.NONE:
            # After a restart the previous generation would come back, and its members would time out: harmless.
            logger.warning(
                "group %s: could not store that generation %d is empty: %s",
                group.group_id,
                group.generation_id,
                error.name,
            )
        return NOTHING

    return on_append
