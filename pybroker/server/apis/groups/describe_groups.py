"""DescribeGroups (15): state, protocol and members of classic groups."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

#: ACL operations on a group as bits: READ (3), DELETE (6), DESCRIBE (8), DESCRIBE_CONFIGS (10), ALTER_CONFIGS (11).
_ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DescribeGroupsRequest
) -> m.DescribeGroupsResponse:
    described = []
    async for group_id in in_slices(request.groups, 1):
        try:
            group = broker.groups.describe_group(group_id, context.api_version)
        except KafkaError as failure:
            group = m.DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=failure.code)
        if request.include_authorized_operations and group.error_code == 0:
            group.authorized_operations = _ALL_GROUP_OPERATIONS
        described.append(group)
    return m.DescribeGroupsResponse(groups=described)


API = Api(m.DescribeGroupsRequest, 0, 6, handle)
