"""Every API at every version is sent requests with the longest strings that a request can carry, generated from the
table of messages: each is answered, whatever the answer repeats of them."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from daemon_client import Client, config_for, connected, running

from pybroker.protocol import definitions
from pybroker.protocol import messages as m
from pybroker.protocol.definitions import FieldDef, StructDef
from pybroker.protocol.loader import message_class, request_header_version, response_header_version
from pybroker.protocol.runtime import MAX_STRING_BYTES
from pybroker.server.registry import load_apis

#: As long as a string can be, of characters of three bytes, so that texts around it have to be cut within one.
LONG = "€" * (MAX_STRING_BYTES // 3) + "x" * (MAX_STRING_BYTES % 3)
APIS = load_apis()
#: What makes requests get far enough to repeat a string; others are "t".
TEXTS = {"group_id": "g", "member_id": "", "entity_type": "client-id", "protocol_type": "consumer", "host": "127.0.0.1"}
NUMBERS = {
    "session_timeout_ms": 10,
    "rebalance_timeout_ms": 10,
    "num_partitions": -1,
    "count": 2,
    "replication_factor": -1,
    "resource_type": 2,
    "member_epoch": 1,
    "generation_id": 1,
}


def strings(definition: StructDef, version: int, path: str = "") -> Iterator[str]:
    """The paths of all strings of a message at a version."""
    for field in definition.fields:
        if version not in field.versions:
            continue
        here = f"{path}.{field.attribute}"
        if field.struct is not None:
            yield from strings(field.struct, version, here)
        elif field.type == "string":
            yield here


def filled(
    kind: Any, owner: Any, definition: StructDef, version: int, long: set[str], full: bool, path: str = ""
) -> Any:
    """A message, or a struct of `owner`, whose strings at `long` are the longest. `full`: arrays that may be null or
    left out have an element as well."""
    values = {}
    for field in definition.fields:
        here = f"{path}.{field.attribute}"
        if version not in field.versions or version in field.tagged:
            continue
        if not full and field.is_array and not any(each.startswith(here) for each in long):
            continue
        values[field.attribute] = _value(field, owner, version, long, full, here)
    return kind(**values)


def _value(field: FieldDef, owner: Any, version: int, long: set[str], full: bool, here: str) -> Any:
    if field.struct is not None:
        one = filled(getattr(owner, field.struct.name), owner, field.struct, version, long, full, here)
    elif field.type == "string":
        one = LONG if here in long else TEXTS.get(field.attribute, "t")
    elif field.type == "uuid":
        one = bytes(range(16))
    elif field.type in ("bytes", "records"):
        one = b"t"
    elif field.type == "bool":
        one = False
    else:
        one = NUMBERS.get(field.attribute, 0)
    return [one] if field.is_array else one


def requests(api_key: int, version: int) -> Iterator[bytes]:
    """Bodies: with all strings the longest, and with each one of them."""
    name = f"{m.apis()[api_key].name}Request"
    kind, body = message_class(name), definitions.message(name).body
    paths = list(strings(body, version))
    for full in (True, False):
        for long in [set(paths), *({path} for path in paths)]:
            yield filled(kind, kind, body, version, long, full).encode(version)


async def answered(client: Client, api_key: int, version: int, body: bytes, client_id: bytes) -> Any:
    """The decoded answer."""
    header = struct.pack(">hhih", api_key, version, 7, len(client_id)) + client_id
    header += b"\0" * (request_header_version(api_key, version) - 1)  # no tagged fields
    client.writer.write(struct.pack(">i", len(header) + len(body)) + header + body)
    data = await client.receive()
    response, end = m.response_class(api_key).decode(version, data, 4 + response_header_version(api_key, version))
    assert end == len(data)
    return response


def test_settings_that_no_string_can_hold_are_described(tmp_path: Path) -> None:
    """A list of the broker's file that is longer, and a log dir whose name is no UTF-8."""
    reporters = ",".join(f"reporter-{number}" for number in range(5_000))

    async def run() -> None:
        config = config_for(tmp_path / "caf\udce9", metric_reporters=reporters)
        async with running(config) as daemon, connected(daemon) as client:
            (directory,) = (await client.call(m.DescribeLogDirsRequest(topics=None), 4)).results
            assert directory.log_dir == str(tmp_path / "caf?")
            broker = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
            request = m.DescribeConfigsRequest(resources=[broker], include_synonyms=True)
            (described,) = (await client.call(request, 4)).results
            values = {each.name: each.value for each in described.configs}
            assert values["metric.reporters"] == reporters[:MAX_STRING_BYTES]
            assert values["log.dirs"] == str(tmp_path / "caf?")

    asyncio.run(run())


@pytest.mark.parametrize("client_id", [LONG.encode(), b"\xff" * MAX_STRING_BYTES], ids=["long", "of-no-characters"])
def test_a_member_with_the_longest_names_is_served_and_described(client_id: bytes, tmp_path: Path) -> None:
    """What the broker makes of a client's names has to fit as well: the member's id, its stored record, its row."""

    async def run() -> None:
        config = config_for(tmp_path, group_initial_rebalance_delay_ms="0")
        async with running(config) as daemon, connected(daemon) as client:
            await answered(client, 10, 2, m.FindCoordinatorRequest(key="g").encode(2), client_id)
            while not daemon.services.groups.is_active(0):  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
            protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name=LONG, metadata=b"t")
            join = m.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type=LONG,
                protocols=[protocol],
            )
            joined = await answered(client, 11, 3, join.encode(3), client_id)
            assert joined.error_code == 0
            assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
            sync = m.SyncGroupRequest(
                group_id="g", generation_id=1, member_id=joined.member_id, assignments=[assignment]
            )
            assert (await answered(client, 14, 3, sync.encode(3), client_id)).error_code == 0
            described = await answered(client, 15, 5, m.DescribeGroupsRequest(groups=["g"]).encode(5), client_id)
            (group,) = described.groups
            (member,) = group.members
            assert (group.error_code, group.group_state, member.member_id) == (0, "Stable", joined.member_id)
            assert member.client_id[0] in "€\ufffd"

    asyncio.run(run())


@pytest.mark.parametrize(
    "client_id",
    [b"me", LONG.encode(), b"\xff" * MAX_STRING_BYTES],
    ids=["short-client-id", "long-client-id", "client-id-of-no-characters"],
)
def test_every_request_with_the_longest_strings_is_answered(
    client_id: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[str] = []

    async def run() -> None:
        config = config_for(tmp_path, group_initial_rebalance_delay_ms="0", group_min_session_timeout_ms="1")
        async with running(config) as daemon:
            async with connected(daemon) as client:
                await client.make_topic("t")
                await answered(client, 10, 2, m.FindCoordinatorRequest(key="g").encode(2), b"me")
            for api_key, api in APIS.items():
                for version in range(api.min_version, api.max_version + 1):
                    bodies = islice(requests(api_key, version), None if client_id == b"me" else 1)
                    for number, body in enumerate(bodies):
                        try:
                            async with connected(daemon) as client:
                                await answered(client, api_key, version, body, client_id)
                        except (asyncio.IncompleteReadError, ConnectionError):
                            refused.append(f"{m.apis()[api_key].name} {version} #{number}")

    asyncio.run(run())
    texts = [each.getMessage()[-400:] for each in caplog.records if each.levelno >= logging.ERROR]
    assert not refused, (len(refused), refused[:20], texts[:3])
    assert not texts, (len(texts), texts[:3])
