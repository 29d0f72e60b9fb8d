"""CreatePartitions (37): more partitions for a topic (KIP-195). Answered when they are served here."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api, BrokerServices, RequestContext


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.CreatePartitionsRequest
) -> m.CreatePartitionsResponse:
    return await broker.controller.create_partitions(request)


API = Api(m.CreatePartitionsRequest, 0, 3, handle)
