"""ListGroups and DescribeGroups: what the groups of one shard look like."""

from __future__ import annotations

from pybroker.coordinator.group.model.group import ClassicGroup
from pybroker.coordinator.group.model.shard_state import ShardState
from pybroker.coordinator.group.model.state import GroupState
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

#: The only type of group served, as ListGroups names it.
CLASSIC_TYPE = "classic"
#: From this version on an unknown group is an error; before, it is shown as Dead.
_GROUP_ID_NOT_FOUND_VERSION = 6


def listed(
    group: ClassicGroup, states: frozenset[str], types: frozenset[str]
) -> m.ListGroupsResponse.ListedGroup | None:
    """A group whose state and type are among the given lower-case names, else None; an empty set lets all through."""
    if (types and CLASSIC_TYPE not in types) or (states and group.state.value.lower() not in states):
        return None
    return m.ListGroupsResponse.ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE,
    )


def describe_group(state: ShardState, group_id: str, api_version: int) -> m.DescribeGroupsResponse.DescribedGroup:
    """A group with its members; their metadata is told only of a Stable one, as it has a protocol for certain."""
    group = state.groups.get(group_id)
    if group is None:
        described = m.DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= _GROUP_ID_NOT_FOUND_VERSION:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found."
        return described
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return m.DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            m.DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
