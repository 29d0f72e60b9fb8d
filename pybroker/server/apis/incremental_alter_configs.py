"""IncrementalAlterConfigs (44): change single settings of topics and brokers (KIP-339). Answered when they are in
effect here.
"""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api, BrokerServices, RequestContext


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.IncrementalAlterConfigsRequest
) -> m.IncrementalAlterConfigsResponse:
    return await broker.controller.incremental_alter_configs(request)


API = Api(m.IncrementalAlterConfigsRequest, 0, 1, handle)
