"""Hostile clients against a running broker: it stays alive, memory bounded and log short, and serves the others."""

from __future__ import annotations

import os
import random
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Producer

from tests.harness.broker import BrokerProcess

MIB = 1 << 20
BUDGET_BYTES = 16 * MIB
FLOODERS = 600
SLACK_BYTES = 100 * MIB
IDLE_CONNECTIONS = 10_000


@pytest.fixture(params=["epoll", "io_uring"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """One with little buffer memory, so that it is soon used up."""
    overrides = {"pybroker.buffer.budget.bytes": str(BUDGET_BYTES), "pybroker.io.backend": str(request.param)}
    with BrokerProcess(overrides=overrides) as running:
        produce(running)
        yield running


def produce(broker: BrokerProcess, timeout_seconds: float = 20.0, value_bytes: int = 1000) -> None:
    """A well-behaved client is served."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": int(timeout_seconds * 1000)})
    producer.produce("victim", b"x" * value_bytes, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(timeout_seconds + 5) == 0
    assert errors == [None]


@contextmanager
def connections(broker: BrokerProcess, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 30)) for _ in range(count)]


def header(api_key: int, version: int, client: bytes = b"mean") -> bytes:
    return struct.pack(">hhih", api_key, version, 1, len(client)) + client


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(20)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def log_lines(broker: BrokerProcess) -> int:
    return len(broker.output_path.read_text().splitlines())


def test_garbage_of_all_kinds_closes_its_connection(broker: BrokerProcess) -> None:
    chance = random.Random(7)
    huge_array = struct.pack(">i", 0x7FFFFFFF)
    cases = [
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(500),
        struct.pack(">i", -1),
        struct.pack(">i", -(1 << 31)),
        struct.pack(">i", 0x7FFFFFFF),
        frame(b""),
        frame(b"\0"),
        frame(header(0, 99)),
        frame(header(1, -1)),
        frame(header(12345, 0)),
        frame(header(0, 7) + struct.pack(">hhi", -1, 1, 1000) + huge_array),
        frame(header(1, 11) + struct.pack(">iiiibii", -1, 500, 1, MIB, 0, 0, -1) + huge_array),
        frame(header(3, 8) + huge_array),
        *(frame(chance.randbytes(chance.randrange(1, 300))) for _ in range(50)),
        *(frame(header(chance.choice([0, 1]), 9) + chance.randbytes(200)) for _ in range(50)),
    ]
    before = log_lines(broker)
    for case in cases:
        with connections(broker, 1) as [connection]:
            connection.sendall(case)
            connection.shutdown(socket.SHUT_WR)
            assert is_closed(connection), case[:60]
    produce(broker)
    assert log_lines(broker) - before <= len(cases) + 5


def test_frames_that_never_end_hold_nobody_up(broker: BrokerProcess) -> None:
    rss_bytes = broker.rss_bytes()
    with connections(broker, FLOODERS) as slow:
        for number, connection in enumerate(slow):
            announced = 90 * MIB if number % 2 else 1000
            connection.sendall(struct.pack(">i", announced) + b"\0\0\0")
        time.sleep(1)
        produce(broker, 60)
        assert broker.rss_bytes() - rss_bytes < SLACK_BYTES
    produce(broker)


def test_clients_that_never_read_hold_bounded_memory(broker: BrokerProcess) -> None:
    rss_bytes = broker.rss_bytes()
    for _ in range(20):
        produce(broker, value_bytes=900_000)
    partition = struct.pack(">iiqqi", 0, -1, 0, -1, 50 * MIB)
    topic = struct.pack(">h", 6) + b"victim" + struct.pack(">i", 1) + partition
    fetch = header(1, 11) + struct.pack(">iiiibii", -1, 0, 0, 50 * MIB, 0, 0, -1) + struct.pack(">i", 1)
    request = frame(fetch + topic + struct.pack(">ih", 0, 0))
    with connections(broker, 200) as greedy:
        for connection in greedy:
            connection.setblocking(False)
            try:
                for _ in range(20):
                    connection.send(request)
            except BlockingIOError:
                continue
        time.sleep(2)
        assert broker.rss_bytes() - rss_bytes < SLACK_BYTES
        produce(broker)


def test_ten_thousand_idle_connections(broker: BrokerProcess) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE_CONNECTIONS + 500:
        pytest.skip("the limit of open files is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (hard, hard))
    rss_bytes = broker.rss_bytes()
    with connections(broker, IDLE_CONNECTIONS) as idle:
        idle[0].sendall(b"\0")
        produce(broker)
        assert broker.rss_bytes() - rss_bytes < SLACK_BYTES
        cpu_seconds, start = broker.cpu_seconds(), time.monotonic()
        time.sleep(10)
        assert (broker.cpu_seconds() - cpu_seconds) / (time.monotonic() - start) < 0.05
    os.kill(broker.pid, 0)
    produce(broker)
