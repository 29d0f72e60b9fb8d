"""LeaveGroup (13): members leave, or an administrator removes static ones."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

#: Before this version a request names one member, and the response has its error at the top.
_BATCH_VERSION = 3
_AT_ONCE = 1_000


async def handle(broker: BrokerServices, context: RequestContext, request: m.LeaveGroupRequest) -> m.LeaveGroupResponse:
    batch = context.api_version >= _BATCH_VERSION
    identities = request.members if batch else [m.LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    response = m.LeaveGroupResponse()
    storing = []
    try:
        # A group with fewer members rebalances once for all that leave.
        async for start in in_slices(range(0, max(len(identities), 1), _AT_ONCE), 1):
            part, committed = broker.groups.leave_group(request.group_id, identities[start : start + _AT_ONCE])
            response.error_code = response.error_code or part.error_code
            response.members += part.members
            if committed is not None:
                storing.append(committed)
    except KafkaError as failure:
        return m.LeaveGroupResponse(error_code=failure.code)
    errors = [await committed for committed in storing]
    error = next((each for each in errors if each is not ErrorCode.NONE), ErrorCode.NONE)
    if error is not ErrorCode.NONE:
        return m.LeaveGroupResponse(error_code=error)
    if not batch:
        top = response.error_code or next((member.error_code for member in response.members), 0)
        return m.LeaveGroupResponse(error_code=top)
    return response


API = Api(m.LeaveGroupRequest, 0, 5, handle)
