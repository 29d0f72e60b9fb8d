"""Requests as large as socket.request.max.bytes allows: none is refused for its size, memory is bounded, a member of a
group beside them is served, and no turn of the control loop takes long."""

from __future__ import annotations

import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable

import pytest

from pybroker.protocol import messages as m
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.hostile.member import Member
from tests.harness.process import free_port

MIB = 1 << 20
#: The largest frame, without a header.
SIZE = 100 * MIB - 64
SESSION_MS = 30_000
HEARTBEAT_LIMIT_S = 1.0
#: The body where it was received, unpacked, and an answer that may be as large.
MEMORY_LIMIT_BYTES = 500 * MIB


def _text(content: bytes) -> bytes:
    return struct.pack(">h", len(content)) + content


def join() -> tuple[int, int, bytes]:
    """JoinGroup 3 with one protocol of bytes."""
    head = _text(b"large") + struct.pack(">ii", 60_000, 60_000) + _text(b"") + _text(b"consumer")
    head += struct.pack(">i", 1) + _text(b"range")
    return 11, 3, head + struct.pack(">i", SIZE - len(head) - 4) + bytes(SIZE - len(head) - 4)


def commit(metadata_bytes: int) -> tuple[int, int, bytes]:
    """OffsetCommit 5 of one topic."""
    head = _text(b"large") + struct.pack(">i", -1) + _text(b"") + struct.pack(">i", 1) + _text(b"t")
    count = (SIZE - len(head) - 4) // (14 + metadata_bytes)
    tail = _text(b"m" * metadata_bytes)
    partitions = b"".join(struct.pack(">iq", index, 7) + tail for index in range(count))
    return 8, 5, head + struct.pack(">i", count) + partitions


def alter(value_bytes: int) -> tuple[int, int, bytes]:
    """AlterConfigs 0 of topics that there are not."""
    tail = struct.pack(">i", 1) + _text(b"retention.ms") + _text(b"9" * value_bytes)
    count = (SIZE - 5) // (1 + 10 + len(tail))
    resources = b"".join(b"\2" + _text(b"t%07d" % number) + tail for number in range(count))
    return 33, 0, struct.pack(">i", count) + resources + b"\0"


def create(value_bytes: int) -> tuple[int, int, bytes]:
    """CreateTopics 4 with a value that no setting has."""
    tail = struct.pack(">ihii", 1, 1, 0, 1) + _text(b"retention.ms") + _text(b"9" * value_bytes)
    count = (SIZE - 9) // (9 + len(tail))
    topics = b"".join(_text(b"n%06d" % number) + tail for number in range(count))
    return 19, 4, struct.pack(">i", count) + topics + struct.pack(">i", 30_000) + b"\0"


REQUESTS: dict[str, Callable[[], tuple[int, int, bytes]]] = {
    "one field of bytes": join,
    "long strings of offsets": lambda: commit(32_000),
    "short strings of offsets": lambda: commit(120),
    "values of topics": lambda: alter(32_000),
    "topics to create": lambda: create(30_000),
}


def _answer(port: int, api_key: int, version: int, body: bytes) -> bytes:
    """The answer's frame without its size; empty when the connection is closed instead."""
    header = struct.pack(">hhih", api_key, version, 7, 5) + b"large"
    with socket.create_connection(("127.0.0.1", port), 600) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header)
        connection.sendall(body)
        received = connection.makefile("rb")
        size = received.read(4)
        return received.read(int.from_bytes(size, "big"))


def _long_turns(metrics_port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(each.split()[1] for each in lines if each.startswith("pybroker_control_loop_long_turns_total ")))


@pytest.mark.parametrize("what", REQUESTS)
def test_the_largest_requests_are_answered_and_hold_up_nobody(what: str) -> None:
    metrics_port, (api_key, version, body) = free_port(), REQUESTS[what]()
    assert len(body) > SIZE - 64 * 1024
    overrides = {
        "pybroker.metrics.listener": f"127.0.0.1:{metrics_port}",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
    }
    answers: list[bytes] = []
    with BrokerProcess(overrides=overrides) as broker:
        with ProtocolClient(broker.port) as client:
            topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
        with Member(broker.port, SESSION_MS) as member:
            time.sleep(2)
            before_bytes, before_count = broker.rss_bytes(), _long_turns(metrics_port)
            asking = threading.Thread(target=lambda: answers.append(_answer(broker.port, api_key, version, body)))
            asking.start()
            most_bytes = 0
            while asking.is_alive():
                most_bytes = max(most_bytes, broker.rss_bytes())
                time.sleep(0.05)
            time.sleep(2)
            long_count = _long_turns(metrics_port) - before_count
    print(f"{what}: slowest heartbeat {max(member.latencies_s):.3f} s, {(most_bytes - before_bytes) // MIB} MiB")
    assert len(answers) == 1 and len(answers[0]) > 4, "it was refused"
    assert set(member.errors) == {0}
    assert max(member.latencies_s) <= HEARTBEAT_LIMIT_S
    assert most_bytes - before_bytes <= MEMORY_LIMIT_BYTES
    assert long_count == 0
