"""Clients that leave members with large metadata behind: the broker's memory stays bounded, and others form groups."""

from __future__ import annotations

import re
import socket
import struct
import urllib.request
from pathlib import Path
from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.loader import response_header_version
from tests.harness.broker import BrokerProcess
from tests.harness.process import free_port

MIB = 1 << 20
CLIENTS = 100
METADATA_BYTES = 8 * MIB - 1024
LIMIT_BYTES = 64 * MIB
#: Receive buffers, what decoding one request takes besides what stays, and what the allocator keeps of that.
SLACK_BYTES = 144 * MIB
JOIN_GROUP, VERSION = 11, 3
GROUP_MAX_SIZE_REACHED = 81
TIMEOUT_S = 120


def sent(port: int, api_key: int, version: int, body: bytes) -> socket.socket:
    """A connection on which that request waits for its answer."""
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    frame = struct.pack(">hhih", api_key, version, 7, 1) + b"c" + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    return connection


def answer(connection: socket.socket, api_key: int, version: int) -> Any:
    with connection, connection.makefile("rb") as file:
        (size_bytes,) = struct.unpack(">i", file.read(4))
        data = file.read(size_bytes)
    return m.response_class(api_key).decode(version, data, 4 + response_header_version(api_key, version))[0]


def join(group: str, metadata_bytes: int) -> bytes:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(metadata_bytes))
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1_800_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return request.encode(VERSION)


def metric(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(broker.ready.get("metrics"), timeout=TIMEOUT_S) as found:
        text = found.read().decode()
    value = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert value is not None, name
    return float(value[1])


def coordinator_ready(port: int) -> None:
    """Returns once the group coordinator serves."""
    find = m.FindCoordinatorRequest(key="g").encode(2)
    while answer(sent(port, 10, 2, find), 10, 2).error_code != 0:
        pass
    while answer(sent(port, JOIN_GROUP, VERSION, join("first", 10)), JOIN_GROUP, VERSION).error_code in (14, 15, 16):
        pass


def test_waiting_joins_are_bounded_and_others_get_in(tmp_path: Path) -> None:
    overrides = {
        "pybroker.group.members.max.bytes": str(LIMIT_BYTES),
        "pybroker.metrics.listener": f"127.0.0.1:{free_port()}",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    with BrokerProcess(tmp_path / "data", overrides=overrides) as broker:
        coordinator_ready(broker.port)
        before_bytes = metric(broker, "process_resident_memory_bytes")
        refused_count = left_count = 0
        for number in range(CLIENTS):
            # The first member of a group is answered at once and stays, as its session is long; its client goes.
            connection = sent(broker.port, JOIN_GROUP, VERSION, join(f"large-{number}", METADATA_BYTES))
            error = answer(connection, JOIN_GROUP, VERSION).error_code
            assert error in (0, GROUP_MAX_SIZE_REACHED)
            refused_count += error != 0
            left_count += error == 0
        assert refused_count > CLIENTS // 2
        assert left_count > 0
        held_bytes = metric(broker, "pybroker_group_member_bytes")
        assert (
            left_count * METADATA_BYTES
            <= held_bytes
            <= LIMIT_BYTES
            == metric(broker, "pybroker_group_member_limit_bytes")
        )
        assert metric(broker, "pybroker_group_members_refused_total") == refused_count
        grown_bytes = metric(broker, "process_resident_memory_bytes") - before_bytes
        print(
            f"{left_count} of {CLIENTS} members stay, {held_bytes / MIB:.0f} MiB; resident +{grown_bytes / MIB:.0f} MiB"
        )
        assert grown_bytes < LIMIT_BYTES + SLACK_BYTES
        # The bystander.
        assert answer(sent(broker.port, JOIN_GROUP, VERSION, join("small", 100)), JOIN_GROUP, VERSION).error_code == 0
