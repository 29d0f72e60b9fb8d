"""DeleteGroups (42): remove groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DeleteGroupsRequest
) -> m.DeleteGroupsResponse:
    results = await broker.groups.delete_groups(request.groups_names)
    return m.DeleteGroupsResponse(
        results=[
            m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
            async for group_id, error in in_slices(results.items())
        ]
    )


API = Api(m.DeleteGroupsRequest, 0, 3, handle)
