"""ApiVersions. From version 5 on a client says which node of which cluster it wants (KIP-1242). APIs that are forwarded
are told in the versions that the active controller takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_services import NODE_ID, Services

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.registry import VersionRange, forwarded_keys, load_apis, served_ranges


async def _answer(version: int, cluster_id: str | None, node_id: int) -> m.ApiVersionsResponse:
    services = await Services().start()
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


APIS = load_apis(joins_quorum=True)
FORWARDED = forwarded_keys(APIS)


class _OfController:
    """Stands for a controller elsewhere that serves these APIs."""

    def __init__(self, ranges: tuple[VersionRange, ...] | None) -> None:
        self.forwarding_ranges = ranges


def _told(taken: tuple[VersionRange, ...] | None) -> dict[int, tuple[int, int]]:
    """What clients are told of a broker whose active controller takes these."""

    async def run() -> m.ApiVersionsResponse:
        services: Any = await Services().start()
        services.served, services.forwarded = served_ranges(APIS), FORWARDED
        services.controller = _OfController(taken)
        request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer: m.ApiVersionsResponse = await services.call("api_versions", request, 4)
        return answer

    return {each.api_key: (each.min_version, each.max_version) for each in asyncio.run(run()).api_keys}


def test_an_older_controller_takes_reassignments_in_its_own_version() -> None:
    key = m.AlterPartitionReassignmentsRequest.API_KEY
    assert _told(((key, 0, 1),))[key] == (0, 1)
    assert _told(((key, 0, 0),))[key] == (0, 0)


def test_everything_forwarded_is_told_as_the_active_controller_takes_it() -> None:
    served = {key: (low, high) for key, low, high in served_ranges(APIS)}
    assert _told(None) == served, "before a controller is known"
    assert {m.CreateTopicsRequest.API_KEY, m.UpdateFeaturesRequest.API_KEY, m.DescribeQuorumRequest.API_KEY} < FORWARDED
    lowest = tuple((key, 0, low) for key, (low, _) in served.items())
    assert _told(lowest) == {key: (low, low if key in FORWARDED else high) for key, (low, high) in served.items()}
    newer = tuple((key, high + 1, high + 2) for key, (_, high) in served.items())
    assert _told(newer) == _told(()) == {key: each for key, each in served.items() if key not in FORWARDED}
