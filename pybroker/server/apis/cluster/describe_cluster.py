"""DescribeCluster (60): the brokers, and who is the controller (KIP-700, KIP-919)."""

from __future__ import annotations

from pybroker.metadata.cache import ALL_CLUSTER_OPERATIONS, NO_OPERATIONS
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.api import Api, BrokerServices, RequestContext

_BROKERS = 1
_CONTROLLERS = 2


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DescribeClusterRequest
) -> m.DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        return _refused(request.endpoint_type)
    image = broker.metadata.image
    return m.DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=broker.config.node_id,
        brokers=[
            m.DescribeClusterResponse.DescribeClusterBroker(
                broker_id=each.id, host=endpoint.host, port=endpoint.port, rack=each.rack, is_fenced=each.fenced
            )
            for each in image.cluster.brokers.values()
            if (request.include_fenced_brokers or not each.fenced)
            and (endpoint := each.endpoint(context.listener)) is not None
        ],
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )


def _refused(endpoint_type: int) -> m.DescribeClusterResponse:
    if endpoint_type == _CONTROLLERS:
        error, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this listener is a broker's, not a controller's"
    else:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"endpoint type {endpoint_type} is unknown; accepted: {_BROKERS} (brokers)"
    return m.DescribeClusterResponse(error_code=error, error_message=message)


API = Api(m.DescribeClusterRequest, 0, 2, handle)
