"""Six clients that send the largest requests there are, and a member of a group beside them that is not expelled.

Whatever they ask, no turn of the control loop takes more than 20 ms of CPU time, the member's heartbeats are answered
within a second, and memory is that of one large request.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from pybroker.protocol import messages as m
from tests.harness.broker import BrokerProcess
from tests.harness.hostile.member import Member
from tests.harness.process import free_port

MIB = 1 << 20
ATTACKERS = 6
SESSION_MS = 6_000
HEARTBEAT_LIMIT_S = 1.0
#: What waits undecoded, and one request unpacked with its answer.
MEMORY_LIMIT_BYTES = 700 * MIB


class Attack(NamedTuple):
    """A request, and how many elements its answer has; 0: its connection is closed instead."""

    api_key: int
    version: int
    body: bytes
    count: int


def metadata(count: int) -> Attack:
    names = b"".join(b"\0\x09%09d" % number for number in range(count))
    return Attack(3, 4, struct.pack(">i", count) + names + b"\0", count)


def list_offsets(count: int) -> Attack:
    return Attack(2, 1, struct.pack(">ii", -1, count) + b"\0\1t\0\0\0\0" * count, count if count <= 1_000_000 else 0)


ATTACKS = {
    "Metadata of 700,000 topics": metadata(700_000),
    "ListOffsets of 1,200,000 topics": list_offsets(1_200_000),
    "ListOffsets of 999,999 topics": list_offsets(999_999),
}


def received(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer when the other side closes."""
    data = bytearray()
    while len(data) < size:
        try:
            part = connection.recv(min(size - len(data), MIB))
        except ConnectionResetError:
            break
        if not part:
            break
        data += part
    return bytes(data)


def answer_to(port: int, attack: Attack) -> bytes:
    """The body of the answer; empty when the connection is closed."""
    header = struct.pack(">hhih", attack.api_key, attack.version, 7, 4) + b"mean"
    with socket.create_connection(("127.0.0.1", port), 600) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(attack.body)) + header + attack.body)
        size = received(connection, 4)
        return received(connection, int.from_bytes(size, "big"))[4:] if len(size) == 4 else b""


class Running(NamedTuple):
    broker: BrokerProcess
    metrics_port: int

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


@pytest.fixture(params=["epoll", "io_uring"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    metrics_port = free_port()
    overrides = {
        "pybroker.io.backend": str(request.param),
        "pybroker.metrics.listener": f"127.0.0.1:{metrics_port}",
        "offsets.topic.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": str(SESSION_MS),
    }
    with BrokerProcess(overrides=overrides) as broker:
        yield Running(broker, metrics_port)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_member_beside_the_largest_requests_is_served(running: Running, name: str) -> None:
    attack = ATTACKS[name]
    answers: list[bytes] = []
    with Member(running.broker.port, SESSION_MS) as member:
        time.sleep(2)
        before_bytes, before_count = (
            running.broker.rss_bytes(),
            running.metric("pybroker_control_loop_long_turns_total"),
        )
        attackers = [
            threading.Thread(target=lambda: answers.append(answer_to(running.broker.port, attack)))
            for _ in range(ATTACKERS)
        ]
        for each in attackers:
            each.start()
        most_bytes = 0
        while any(each.is_alive() for each in attackers):
            most_bytes = max(most_bytes, running.broker.rss_bytes())
            time.sleep(0.05)
        time.sleep(SESSION_MS / 1000 + 1)
        long_count = running.metric("pybroker_control_loop_long_turns_total") - before_count
    slowest_s = max(member.latencies_s)
    grown_bytes = most_bytes - before_bytes
    print(f"{name}: slowest heartbeat {slowest_s:.3f} s, {grown_bytes >> 20} MiB, {long_count:g} long turns")
    assert set(member.errors) == {0}, "the member was expelled"
    assert slowest_s <= HEARTBEAT_LIMIT_S
    assert grown_bytes <= MEMORY_LIMIT_BYTES
    assert long_count == 0
    assert len(answers) == ATTACKERS
    if attack.count == 0:
        assert set(answers) == {b""}
        return
    response, _ = m.response_class(attack.api_key).decode(attack.version, answers[0])
    topics = response.topics  # type: ignore[attr-defined]  # both have them
    assert len(topics) == attack.count
    assert all(each == answers[0] for each in answers)


def test_a_member_of_a_broker_that_was_stopped_is_not_expelled(running: Running) -> None:
    """As by a debugger, or a virtual machine that is moved: nobody could show life meanwhile."""
    with Member(running.broker.port, SESSION_MS) as member:
        time.sleep(2)
        for _ in range(3):
            os.kill(running.broker.pid, signal.SIGSTOP)
            time.sleep(2 * SESSION_MS / 1000)
            os.kill(running.broker.pid, signal.SIGCONT)
            time.sleep(3)
    assert set(member.errors) == {0}


def test_a_member_that_is_gone_is_expelled_though_large_requests_come_all_the_time(running: Running) -> None:
    member = Member(running.broker.port, SESSION_MS)
    stopped = threading.Event()

    def attack() -> None:
        while not stopped.is_set():
            answer_to(running.broker.port, metadata(200_000))

    attackers = [threading.Thread(target=attack) for _ in range(ATTACKERS)]
    for each in attackers:
        each.start()
    try:
        time.sleep(3 * SESSION_MS / 1000)
        assert member.heartbeat() == 25, "UNKNOWN_MEMBER_ID"
    finally:
        stopped.set()
        member.close()
        for each in attackers:
            each.join()
