"""DescribeUserScramCredentials (50): which users have SCRAM credentials in the metadata (KIP-554). Listeners here ask
for none."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import SteadyDict, drop, in_slices

_Result = m.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Credential = m.DescribeUserScramCredentialsResponse.CredentialInfo


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DescribeUserScramCredentialsRequest
) -> m.DescribeUserScramCredentialsResponse:
    known: dict[str, list[m.DescribeUserScramCredentialsResponse.CredentialInfo]] = {}
    async for (mechanism, user), credential in in_slices(broker.metadata.image.scram_credentials.items()):
        known.setdefault(user, []).append(_Credential(mechanism=mechanism, iterations=credential.iterations))
    # An empty list means all of them, like null.
    counts: SteadyDict[str, int] = SteadyDict()
    async for name in in_slices((each.name for each in request.users) if request.users else known):
        counts[name] = (counts.get(name) or 0) + 1
    answer = m.DescribeUserScramCredentialsResponse(error_message="")
    async for user, count in in_slices(counts.items()):
        row = _Result(user=user)
        if count > 1:
            row.error_code, row.error_message = ErrorCode.DUPLICATE_RESOURCE, f"user {user!r} is named more than once"
        elif user not in known:
            row.error_code, row.error_message = ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no credentials"
        else:
            row.credential_infos = known[user]
        answer.results.append(row)
    await drop(counts)
    return answer


API = Api(m.DescribeUserScramCredentialsRequest, 0, 0, handle)
