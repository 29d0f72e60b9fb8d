"""Heartbeat (12): a member is alive; it learns whether to rejoin."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext


async def handle(broker: BrokerServices, context: RequestContext, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
    try:
        error = broker.groups.heartbeat(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )
    except KafkaError as failure:
        # While its group is being loaded a member has nothing to do but go on.
        error = ErrorCode.NONE if failure.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else failure.code
    return m.HeartbeatResponse(error_code=error)


API = Api(m.HeartbeatRequest, 0, 4, handle)
