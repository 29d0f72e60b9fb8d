"""What is said of controllers that cannot be joined."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from scripted_controller import controllers

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.uuids import random_uuid
from pybroker.quorum.errors import QuorumError
from pybroker.quorum.start import find_cluster
from pybroker.storage.files.meta_properties import MetaProperties


async def told_of(answer: bytes) -> str:
    """The error when a listener takes the first request, answers with these bytes and hangs up."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = ["process.roles=broker", f"controller.quorum.bootstrap.servers=127.0.0.1:{port}"]
    config = BrokerConfig.load(None, [*settings, "initial.broker.registration.timeout.ms=1"])
    with pytest.raises(QuorumError) as raised:
        await find_cluster(config)
    server.close()
    return str(raised.value)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (bytes.fromhex("15030300020250"), "it speaks TLS"),
        (b"", "as a listener of SSL or SASL does"),
        (b"HTTP/1.1 400 Bad Request", "no Kafka controller"),
    ],
)
def test_listeners_that_cannot_be_joined(answer: bytes, expected: str) -> None:
    text = asyncio.run(told_of(answer))
    assert expected in text
    assert "controller.listener.names" in text


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_secured_controllers_are_refused_by_the_name_of_the_setting(protocol: str) -> None:
    settings = ["process.roles=broker", "controller.quorum.bootstrap.servers=c:9093"]
    mapped = f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}"
    with pytest.raises(ConfigError, match=f"CONTROLLER of the controllers stands for {protocol}") as raised:
        BrokerConfig.load(None, [*settings, mapped])
    assert raised.value.keys == ("listener.security.protocol.map", "controller.listener.names")


@pytest.mark.parametrize("is_formatted", [True, False])
def test_controllers_of_an_old_level_do_not_tell_which_cluster_they_are(tmp_path: Path, is_formatted: bool) -> None:
    """Below 3.7-IV0 they answer DescribeCluster with UNSUPPORTED_VERSION: what the log dirs say counts."""
    if is_formatted:
        MetaProperties(2, "cluster", random_uuid()).write(tmp_path)

    async def run() -> str:
        async with controllers() as (member,):
            answer = m.DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            member.on[m.DescribeClusterRequest] = lambda _: answer
            settings = ["process.roles=broker", f"controller.quorum.bootstrap.servers=127.0.0.1:{member.address[1]}"]
            return await find_cluster(BrokerConfig.load(None, [*settings, f"log.dirs={tmp_path}"]))

    if is_formatted:
        assert asyncio.run(run()) == "cluster"
        return
    with pytest.raises(QuorumError, match=r"format them with `kafka-storage\.sh format --cluster-id ID`"):
        asyncio.run(run())
