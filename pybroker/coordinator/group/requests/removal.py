"""How groups end: deleted by a user, expired with their last offset, or unloaded because their partition moved."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping

from pybroker.coordinator.group.log import records
from pybroker.coordinator.group.model.group import ClassicGroup, complete_sync
from pybroker.coordinator.group.model.shard_state import ShardState
from pybroker.coordinator.group.model.state import GroupState
from pybroker.coordinator.group.requests import offsets
from pybroker.coordinator.outcome import NOTHING, CoordinatorRecord, Outcome, Part, first_batch
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.turns import in_slices


def close_for_delete(state: ShardState, group_id: str) -> tuple[ErrorCode, ClassicGroup | None]:
    """First half of a deletion: turn an Empty group Dead, so that nobody joins or commits any more.

    The second half, `delete_closed`, is due when no commit of the group is in flight; both may follow at once.
    """
    group = state.groups.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND, None
    try:
        group.validate_delete()
    except KafkaError as error:
        return error.code, None
    return ErrorCode.NONE, _close(group)


async def delete_closed(state: ShardState, groups: Iterable[ClassicGroup]) -> Outcome:
    """Tombstones for closed groups and all that they have committed, made in slices of the loop; if they cannot be
    stored all are Empty again."""
    closed = list(groups)
    made: list[CoordinatorRecord] = []
    async for group in in_slices(closed, 1):
        made += await offsets.all_tombstones(state, group.group_id)
        made.append(records.group_tombstone(group.group_id))
    return Outcome(made, _reopen_on_error(closed)) if made else NOTHING


def expire_group(state: ShardState, group: ClassicGroup, max_batch_bytes: int) -> Part:
    """Tombstones for what is past its retention; that of the group itself, which is then closed, comes last of all."""
    if group.state is GroupState.DEAD:
        return Part(NOTHING, is_last=True)
    made, is_last = first_batch(offsets.expired(state, group), max_batch_bytes)
    ends_group = bool(made) and isinstance(made[-1].change, records.GroupChange)
    return Part(Outcome(made, _reopen_on_error([_close(group)]) if ends_group else None), is_last)


def forget_topics(state: ShardState, deleted: Mapping[str, bytes], group_id: str, max_batch_bytes: int) -> Part:
    """Makes tombstones for a group's offsets of deleted topics (name to id), once no commit of the group is in flight.
    Such a commit may be for a new topic of that name."""
    if group_id in state.in_flight_commits:
        return Part(NOTHING, is_last=False)
    made, is_last = first_batch(offsets.topics_deleted(state, group_id, deleted), max_batch_bytes)
    return Part(Outcome(made), is_last)


def unload_steps(state: ShardState) -> Generator[None, None, None]:
    """The partition is led elsewhere now: end all groups, then answer all parked requests with NOT_COORDINATOR. Yields
    between answers, where it may be interrupted; only appends under way find the groups any more."""
    groups = list(state.groups.values())
    for group in groups:
        group.transition_to(GroupState.DEAD, state.clock.wall_ms())
    for group in groups:
        for member in list(group.members.values()):
            group.complete_join(
                member,
                m.JoinGroupResponse(
                    member_id=member.member_id, protocol_name=None, error_code=ErrorCode.NOT_COORDINATOR
                ),
            )
            complete_sync(member, m.SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
            yield


def _close(group: ClassicGroup) -> ClassicGroup:
    # The time since when the group is empty stays: it counts again should the group come back.
    group.state = GroupState.DEAD
    return group


def reopen(groups: Iterable[ClassicGroup]) -> None:
    """Closed groups are Empty again: their removal did not come about."""
    for group in groups:
        if group.state is GroupState.DEAD:
            group.state = GroupState.EMPTY


def _reopen_on_error(closed: list[ClassicGroup]) -> Callable[[ErrorCode], Outcome]:
    def on_append(error: ErrorCode) -> Outcome:
        if error is not ErrorCode.NONE:
            reopen(closed)
        return NOTHING

    return on_append
