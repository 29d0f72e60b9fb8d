"""JoinGroup (11): enter a group's next generation. Answered when the join phase of the rebalance ends."""

from __future__ import annotations

from pybroker.coordinator.group.requests.join import Join
from pybroker.protocol import messages as m
from pybroker.protocol.errors import KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.server.parked import parked
from pybroker.turns import in_slices

#: Before this version there is no rebalance timeout: the session timeout is meant.
_REBALANCE_TIMEOUT_VERSION = 1
#: Before this version the protocol name cannot be null.
_NULL_PROTOCOL_VERSION = 7


async def handle(broker: BrokerServices, context: RequestContext, request: m.JoinGroupRequest) -> m.JoinGroupResponse:
    version = context.api_version
    session_timeout_ms = request.session_timeout_ms
    future, reply = parked(m.JoinGroupResponse)
    join = Join(
        group_id=request.group_id,
        api_version=version,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        # Java's way of writing an address, which is what tools show.
        client_host=f"/{context.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if version >= _REBALANCE_TIMEOUT_VERSION else session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, protocol.metadata) async for protocol in in_slices(request.protocols)],
        reason=request.reason,
        reply=reply,
    )
    try:
        broker.groups.join_group(join)
    except KafkaError as error:
        join.refuse(error.code, "")
    # While it waits only what the group has counted of it is to stay.
    del join, request
    response = await future
    if version < _NULL_PROTOCOL_VERSION and response.protocol_name is None:
        response.protocol_name = ""
    return response


API = Api(m.JoinGroupRequest, 0, 9, handle)
