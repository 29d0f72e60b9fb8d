"""Requests that the controller answers, whichever one: handed on to it as they are.

Apache Kafka's controllers know more than the embedded one. `forwarded` has the APIs that are asked of them, which then
take the place of the handlers that answer from this broker's own knowledge.
"""

from __future__ import annotations

from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.server.api import Api, BrokerServices, RequestContext


async def perform(broker: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer with what the controller says."""
    origin = Origin(context.principal, context.client_host, context.client_id)
    return await broker.controller.perform(request, context.api_version, origin)


def forwarded() -> dict[int, Api[Any, Any]]:
    """By api key."""
    return {
        each.API_KEY: Api(each, each.MIN_VERSION, each.MAX_VERSION, perform)
        for each in (
            m.AlterPartitionReassignmentsRequest,
            m.ListPartitionReassignmentsRequest,
            m.DescribeQuorumRequest,
            m.UpdateFeaturesRequest,
            m.UnregisterBrokerRequest,
            m.UnregisterControllerRequest,
            m.AddRaftVoterRequest,
            m.RemoveRaftVoterRequest,
        )
    }
