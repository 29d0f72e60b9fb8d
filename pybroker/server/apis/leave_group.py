"""LeaveGroup (13): members leave, or an administrator removes static ones."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext

#: Before this version a request names one member, and the response has its error at the top.
_BATCH_VERSION = 3


async def handle(broker: BrokerServices, context: RequestContext, request: m.LeaveGroupRequest) -> m.LeaveGroupResponse:
    batch = context.api_version >= _BATCH_VERSION
    identities = request.members if batch else [m.LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    try:
        response, committed = broker.groups.leave_group(request.group_id, identities)
    except KafkaError as failure:
        return m.LeaveGroupResponse(error_code=failure.code)
    if committed is not None:
        error = await committed
        if error is not ErrorCode.NONE:
            return m.LeaveGroupResponse(error_code=error)
    if not batch:
        top = response.error_code or next((member.error_code for member in response.members), 0)
        return m.LeaveGroupResponse(error_code=top)
    return response


API = Api(m.LeaveGroupRequest, 0, 5, handle)
