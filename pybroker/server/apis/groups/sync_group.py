"""SyncGroup (14): hand in and receive the assignment. Answered when the leader's assignment is stored."""

from __future__ import annotations

from pybroker.coordinator.group.requests.sync import Sync
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.server.parked import parked
from pybroker.turns import in_slices

#: From this version on (KIP-559) a member has to say which protocol it means.
_PROTOCOL_REQUIRED_VERSION = 5


async def handle(broker: BrokerServices, context: RequestContext, request: m.SyncGroupRequest) -> m.SyncGroupResponse:
    if context.api_version >= _PROTOCOL_REQUIRED_VERSION and None in (request.protocol_type, request.protocol_name):
        return m.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    future, reply = parked(m.SyncGroupResponse)
    sync = Sync(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={given.member_id: given.assignment async for given in in_slices(request.assignments)},
        reply=reply,
    )
    try:
        broker.groups.sync_group(sync)
    except KafkaError as error:
        sync.refuse(error.code)
    # While it waits only what the group has counted of it is to stay: a member that does not lead may send assignments
    # as well.
    del sync, request
    return await future


API = Api(m.SyncGroupRequest, 0, 5, handle)
