"""ListGroups (16): the groups this broker coordinates, by state (KIP-518) and type (KIP-848) if asked."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext


async def handle(broker: BrokerServices, context: RequestContext, request: m.ListGroupsRequest) -> m.ListGroupsResponse:
    try:
        return m.ListGroupsResponse(groups=await broker.groups.list_groups(request.states_filter, request.types_filter))
    except KafkaError as failure:
        return m.ListGroupsResponse(error_code=failure.code)


API = Api(m.ListGroupsRequest, 0, 5, handle)
