"""DeleteTopics (20): by name, since version 6 also by id (KIP-516). Answered when they are served no more."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api, BrokerServices, RequestContext


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DeleteTopicsRequest
) -> m.DeleteTopicsResponse:
    return await broker.controller.delete_topics(request, context.api_version)


API = Api(m.DeleteTopicsRequest, 1, 6, handle)
