"""`pybroker events` against an endpoint of this test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest
from click.testing import CliRunner

from pybroker.cli.main import main
from pybroker.observability.http_server import HttpServer, Response, text_response

EVENTS = [
    {"number": 4, "time": 1_700_000_000.5, "kind": "roll", "text": "t-0 begins a segment", "fields": {}},
    {"number": 5, "time": 1_700_000_001.5, "kind": "rebalance", "text": "group g", "fields": {"group": "g"}},
]


@pytest.fixture
def asked() -> list[dict[str, str]]:
    return []


@pytest.fixture
def address(asked: list[dict[str, str]]) -> Iterator[str]:
    async def events(query: Mapping[str, str]) -> Response:
        asked.append(dict(query))
        if query.get("kind") == "offline":
            return text_response(400, "no such thing")
        found = [each for each in EVENTS if query.get("kind") in (None, each["kind"])]
        return Response(200, "application/json", json.dumps({"events": found}).encode())

    server = HttpServer("127.0.0.1", 0, {"/events": events})
    server.start()
    yield f"127.0.0.1:{server.port}"
    server.stop()


def test_lines_for_people_and_for_programs(address: str, asked: list[dict[str, str]]) -> None:
    result = CliRunner().invoke(main, ["events", "--address", address])
    assert result.exit_code == 0, result.output
    first, second = result.output.splitlines()
    assert first.endswith("  roll          t-0 begins a segment")
    assert second.endswith("  rebalance     group g")
    result = CliRunner().invoke(main, ["events", "--address", address, "--json", "--kind", "rebalance", "--limit", "3"])
    assert [json.loads(line) for line in result.output.splitlines()] == [EVENTS[1]]
    assert asked == [{"limit": "50", "after": "0"}, {"limit": "3", "after": "0", "kind": "rebalance"}]


def test_what_goes_wrong_is_one_line(address: str) -> None:
    for arguments, words in (
        (["--address", "127.0.0.1:1"], "Connection refused"),
        (["--address", "nowhere"], "accepted is HOST:PORT"),
        (["--address", "127.0.0.1:65536"], "accepted is HOST:PORT"),
        (["--address", f"{'x' * 64}:1"], "label too long"),
        (["--address", "a b:1"], "control characters"),
        (["--address", address, "--kind", "offline"], "no such thing"),
    ):
        result = CliRunner().invoke(main, ["events", *arguments])
        assert result.exit_code == 1
        assert words in result.output
        assert len(result.output.splitlines()) == 1
