"""CreateTopics (19): new topics, placed by the controller. Answered when their partitions are served here."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api, BrokerServices, RequestContext


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.CreateTopicsRequest
) -> m.CreateTopicsResponse:
    return await broker.controller.create_topics(request, context.api_version)


API = Api(m.CreateTopicsRequest, 2, 7, handle)
