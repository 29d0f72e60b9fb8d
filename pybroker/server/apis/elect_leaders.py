"""ElectLeaders (43): give partitions their preferred leader, or any at the price of records (KIP-183, KIP-460)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api, BrokerServices, RequestContext


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.ElectLeadersRequest
) -> m.ElectLeadersResponse:
    return await broker.controller.elect_leaders(request)


API = Api(m.ElectLeadersRequest, 0, 2, handle)
