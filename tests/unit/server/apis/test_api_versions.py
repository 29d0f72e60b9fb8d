"""ApiVersions from version 5 on: a client that says which node of which cluster it wants (KIP-1242)."""

from __future__ import annotations

import asyncio

import pytest
from broker_services import NODE_ID, Services

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode


async def _answer(version: int, cluster_id: str | None, node_id: int) -> m.ApiVersionsResponse:
    services = await Services().start()
    services.served = ()
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    if version >= 5:
        request.cluster_id, request.node_id = cluster_id, node_id
    answer: m.ApiVersionsResponse = await services.call("api_versions", request, version)
    return answer


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("cluster-id", NODE_ID, ErrorCode.NONE),
        ("another", NODE_ID, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("cluster-id", NODE_ID + 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("cluster-id", -1, ErrorCode.INVALID_REQUEST),
        (None, NODE_ID, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_learns_that_it_has_another_node(cluster_id: str | None, node_id: int, error: ErrorCode) -> None:
    assert asyncio.run(_answer(5, cluster_id, node_id)).error_code == error


def test_older_versions_do_not_ask() -> None:
    assert asyncio.run(_answer(4, None, -1)).error_code == ErrorCode.NONE
