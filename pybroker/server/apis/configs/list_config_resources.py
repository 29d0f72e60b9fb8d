"""ListConfigResources (74): everything that has a configuration (KIP-1142)."""

from __future__ import annotations

from pybroker.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_GROUP = 32
_ALL = (RESOURCE_TOPIC, RESOURCE_BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)
#: Before this version the API is ListClientMetricsResources (KIP-1000).
_TYPES_VERSION = 1

_Resource = m.ListConfigResourcesResponse.ConfigResource


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.ListConfigResourcesRequest
) -> m.ListConfigResourcesResponse:
    served = _ALL if context.api_version >= _TYPES_VERSION else (_CLIENT_METRICS,)
    wanted = {kind: None async for kind in in_slices(request.resource_types)} or dict.fromkeys(served)
    if not wanted.keys() <= set(served):
        return m.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return m.ListConfigResourcesResponse(
        config_resources=[
            _Resource(resource_name=name, resource_type=kind)
            for kind in wanted
            async for name in in_slices(_names(broker, kind))
        ]
    )


def _names(broker: BrokerServices, kind: int) -> list[str]:
    image = broker.metadata.image
    if kind == RESOURCE_TOPIC:
        return list(image.topics.by_name)
    if kind in (RESOURCE_BROKER, _BROKER_LOGGER):
        return [str(each.id) for each in image.cluster.brokers.values() if not each.fenced]
    # Client metrics and groups are known by their settings alone.
    return [name for resource_type, name in image.configs if resource_type == kind]


API = Api(m.ListConfigResourcesRequest, 0, 1, handle)
