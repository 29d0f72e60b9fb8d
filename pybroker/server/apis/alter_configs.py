"""AlterConfigs (33): replace all settings of topics and brokers (KIP-133). Answered when they are in effect here."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api, BrokerServices, RequestContext


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.AlterConfigsRequest
) -> m.AlterConfigsResponse:
    return await broker.controller.alter_configs(request)


API = Api(m.AlterConfigsRequest, 0, 2, handle)
