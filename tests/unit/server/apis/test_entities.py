"""DescribeClientQuotas and DescribeUserScramCredentials, of metadata that Apache Kafka's broker has left."""

from __future__ import annotations

import asyncio

import pytest
from broker_services import Services

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

EXACT, DEFAULT, ANY = 0, 1, 2
SCRAM_SHA_256, SCRAM_SHA_512 = 1, 2

Entity = dict[str, str | None]
Match = tuple[str, int, str | None]


def _quota(value: float, key: str, **entity: str | None) -> tuple[m.ClientQuotaRecord, int]:
    parts = [
        m.ClientQuotaRecord.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    return m.ClientQuotaRecord(entity=parts, key=key, value=value, remove=False), 0


QUOTAS = (
    _quota(1000.0, "producer_byte_rate", user="ann"),
    _quota(2000.0, "consumer_byte_rate", user="ann"),
    _quota(3.0, "request_percentage", user=None),
    _quota(4.0, "request_percentage", user="ann", client_id="app"),
    _quota(5.0, "connection_creation_rate", ip="127.0.0.1"),
)
ANN: Entity = {"user": "ann"}
EVERYONE: Entity = {"user": None}
ANNS_APP: Entity = {"user": "ann", "client-id": "app"}
HOME: Entity = {"ip": "127.0.0.1"}


@pytest.mark.parametrize(
    ("matches", "is_strict", "found"),
    [
        ([], False, [ANN, EVERYONE, ANNS_APP, HOME]),
        ([], True, []),
        ([("user", EXACT, "ann")], False, [ANN, ANNS_APP]),
        ([("user", EXACT, "ann")], True, [ANN]),
        ([("user", DEFAULT, None)], False, [EVERYONE]),
        ([("user", ANY, None)], False, [ANN, EVERYONE, ANNS_APP]),
        ([("user", ANY, None), ("client-id", EXACT, "app")], True, [ANNS_APP]),
        ([("client-id", DEFAULT, None)], False, []),
        ([("ip", ANY, None)], True, [HOME]),
    ],
)
def test_quotas_are_found_by_their_entity(matches: list[Match], is_strict: bool, found: list[Entity]) -> None:
    async def run() -> None:
        answer = await _quotas(matches, is_strict)
        assert answer.error_code == 0 and answer.entries is not None
        assert [{part.entity_type: part.entity_name for part in each.entity} for each in answer.entries] == found
        values = [{each.key: each.value for each in entry.values} for entry in answer.entries]
        if found and found[0] == ANN:
            assert values[0] == {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("matches", "error"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", ANY, None), ("user", EXACT, "ann")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "ann")], ErrorCode.INVALID_REQUEST),
        ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(matches: list[Match], error: ErrorCode) -> None:
    async def run() -> None:
        answer = await _quotas(matches, False)
        assert (answer.error_code, answer.entries) == (error, None)
        assert answer.error_message

    asyncio.run(run())


async def _quotas(matches: list[Match], is_strict: bool) -> m.DescribeClientQuotasResponse:
    row = m.DescribeClientQuotasRequest.ComponentData
    components = [row(entity_type=kind, match_type=match_type, match=name) for kind, match_type, name in matches]
    request = m.DescribeClientQuotasRequest(components=components, strict=is_strict)
    services = await Services(*QUOTAS).start()
    answer: m.DescribeClientQuotasResponse = await services.call("describe_client_quotas", request, 1)
    return answer


@pytest.mark.parametrize(
    ("users", "found"),
    [
        (None, {"ann": (0, [(SCRAM_SHA_256, 4096), (SCRAM_SHA_512, 8192)])}),
        ([], {"ann": (0, [(SCRAM_SHA_256, 4096), (SCRAM_SHA_512, 8192)])}),
        (
            ["ann", "bob"],
            {
                "ann": (0, [(SCRAM_SHA_256, 4096), (SCRAM_SHA_512, 8192)]),
                "bob": (ErrorCode.RESOURCE_NOT_FOUND, []),
            },
        ),
        (["ann", "ann"], {"ann": (ErrorCode.DUPLICATE_RESOURCE, [])}),
    ],
)
def test_credentials_are_told_without_their_secrets(users: list[str] | None, found: object) -> None:
    async def run() -> None:
        records = [
            (m.UserScramCredentialRecord(name="ann", mechanism=mechanism, iterations=iterations), 0)
            for mechanism, iterations in ((SCRAM_SHA_256, 4096), (SCRAM_SHA_512, 8192))
        ]
        services = await Services(*records).start()
        names = None
        if users is not None:
            names = [m.DescribeUserScramCredentialsRequest.UserName(name=user) for user in users]
        request = m.DescribeUserScramCredentialsRequest(users=names)
        answer = await services.call("describe_user_scram_credentials", request, 0)
        rows = {
            row.user: (row.error_code, [(each.mechanism, each.iterations) for each in row.credential_infos])
            for row in answer.results
        }
        assert rows == found

    asyncio.run(run())
