"""An answer's arrays are emptied once it is sent, so no answer has an array that something else still needs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from daemon_client import config_for, connected, running
from test_longest_requests import APIS, answered, filled

from pybroker.protocol import definitions
from pybroker.protocol import messages as m
from pybroker.protocol.loader import message_class
from pybroker.protocol.runtime import Struct
from pybroker.server.api import Api
from pybroker.server.large_requests import LARGE_BYTES
from pybroker.server.registry import load_apis

API_VERSIONS, FIND_COORDINATOR = 18, 10
#: The number of the tagged field that no version has, in one byte.
UNKNOWN_TAG = 100


def varint(value: int) -> bytes:
    """As in the protocol, unsigned."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def test_a_large_request_leaves_the_next_client_its_api_versions(tmp_path: Path) -> None:
    plain = m.ApiVersionsRequest(client_software_name="test", client_software_version="1").encode(3)
    assert plain[-1] == 0, "the count of tagged fields"
    unknown = bytes(LARGE_BYTES + 1)
    large = plain[:-1] + bytes([1, UNKNOWN_TAG]) + varint(len(unknown)) + unknown

    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            answers = [await answered(client, API_VERSIONS, 3, body, b"me") for body in (plain, large, plain)]
            assert answers[0].api_keys
            assert answers[0] == answers[1] == answers[2]

    asyncio.run(run())


def arrays(message: Struct) -> list[list[Any]]:
    """The arrays of a message that freeing it empties, at any depth."""
    found = []
    for name in message.__slots__:
        items = getattr(message, name)
        if type(items) is list and items and isinstance(items[0], (Struct, str)):
            found.append(items)
            found += [array for each in items if isinstance(each, Struct) for array in arrays(each)]
    return found


def test_no_array_is_in_two_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every API at every version, each with all its arrays and without them, and each twice."""
    seen: dict[int, tuple[str, list[Any]]] = {}
    shared: set[str] = set()

    def watched(api: Api[Any, Any]) -> Api[Any, Any]:
        async def handle(*arguments: Any) -> Any:
            answer = await api.handle(*arguments)
            name = type(answer).__name__
            for array in arrays(answer) if isinstance(answer, Struct) else ():
                # Kept, so that no other array gets its address.
                if id(array) in seen:
                    shared.add(f"{name} and {seen[id(array)][0]}")
                seen[id(array)] = (name, array)
            return answer

        return api.replace(handle=handle)

    def load_watched(**arguments: Any) -> dict[int, Api[Any, Any]]:
        return {key: watched(api) for key, api in load_apis(**arguments).items()}

    monkeypatch.setattr("pybroker.server.daemon.load_apis", load_watched)

    async def run() -> None:
        config = config_for(tmp_path, group_initial_rebalance_delay_ms="0", group_min_session_timeout_ms="1")
        async with running(config) as daemon:
            async with connected(daemon) as client:
                await client.make_topic("t")
                await client.find_coordinator("g")
            for key, api in APIS.items():
                name = f"{m.apis()[key].name}Request"
                kind, body = message_class(name), definitions.message(name).body
                for version in range(api.min_version, api.max_version + 1):
                    for full in (True, False, True, False):
                        request = filled(kind, kind, body, version, set(), full).encode(version)
                        async with connected(daemon) as client:
                            await answered(client, key, version, request, b"me")

    asyncio.run(run())
    answers = {name for name, _ in seen.values()}
    assert {"ApiVersionsResponse", "DescribeConfigsResponse", "DescribeGroupsResponse"} < answers
    assert not shared
