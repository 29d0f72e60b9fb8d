"""Clients that announce large requests and do not send them take nothing from those who do send."""

from __future__ import annotations

import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pybroker.protocol import messages as m
from pybroker.protocol.record_batch import build_plain
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.process import free_port

MIB = 1 << 20
BUDGET_BYTES = 64 * MIB
CROWD = 1024
TOPIC = "victim"
METRICS_PORT = free_port()
#: A producer's requests take a few ms; what the fault cost it were seconds.
MOST_SECONDS = 1.0


@pytest.fixture(params=["epoll", "io_uring"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    overrides = {
        "pybroker.metrics.listener": f"127.0.0.1:{METRICS_PORT}",
        "pybroker.buffer.budget.bytes": str(BUDGET_BYTES),
        "pybroker.io.backend": str(request.param),
        "pybroker.reactors": "2",
    }
    with BrokerProcess(overrides=overrides) as running:
        make_topic(running)
        yield running


@contextmanager
def crowd(
    broker: BrokerProcess, announced_bytes: int, sent: bytes, count: int = CROWD
) -> Iterator[list[socket.socket]]:
    """Connections that have each sent the beginning of a frame."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 30)) for _ in range(count)
        ]
        for connection in connections:
            connection.sendall(struct.pack(">i", announced_bytes) + sent)
        yield connections


def longest_produce(broker: BrokerProcess, value_bytes: int, count: int) -> float:
    """Produce so many records one by one, each acknowledged: seconds that the longest took."""
    batch = build_plain(0, [(b"k", bytes(value_bytes))], timestamp_ms=int(time.time() * 1000))
    data = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    request = m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    longest = 0.0
    with ProtocolClient(broker.port) as client:
        for _ in range(count):
            before = time.monotonic()
            assert client.call(request, 9).responses[0].partition_responses[0].error_code == 0
            longest = max(longest, time.monotonic() - before)
    return longest


def make_topic(broker: BrokerProcess) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    with ProtocolClient(broker.port) as client:
        assert client.call(m.CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0


def slow_closed(metrics_port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    name = "pybroker_slow_connections_closed_total "
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name))


@pytest.mark.parametrize("announced_bytes", [60_000, 1_000_000, 90 * MIB])
def test_eight_bytes_of_a_large_frame_hold_nobody_up(broker: BrokerProcess, announced_bytes: int) -> None:
    with crowd(broker, announced_bytes, b"\0\0\0\7") as connections:
        for value_bytes in (1000, 256 * 1024, 900_000):
            assert longest_produce(broker, value_bytes, 20) < MOST_SECONDS
        assert not any(is_closed(each) for each in connections), "nobody had to go"


def test_frames_that_trickle_hold_nobody_up(broker: BrokerProcess) -> None:
    with crowd(broker, 1_000_000, b"\0\0\0\7") as connections:
        done = threading.Event()

        def trickle() -> None:
            while not done.wait(0.5):
                for connection in connections:
                    connection.sendall(b"\0")

        feeder = threading.Thread(target=trickle)
        feeder.start()
        try:
            for _ in range(5):
                assert longest_produce(broker, 256 * 1024, 10) < MOST_SECONDS
        finally:
            done.set()
            feeder.join()


@pytest.mark.parametrize("announced_bytes", [100_000, 90 * MIB])
def test_sent_and_unfinished_bytes_beyond_the_budget_cost_the_slowest(
    broker: BrokerProcess, announced_bytes: int
) -> None:
    """96 MiB were really sent, so some have to go; others wait no longer than it takes to see who is slow."""
    with crowd(broker, announced_bytes, b"\0\0\0\7" + bytes(96_000)) as connections:
        assert longest_produce(broker, 1000, 200) < MOST_SECONDS
        time.sleep(3)
        assert longest_produce(broker, 256 * 1024, 20) < 3 * MOST_SECONDS
        closed = sum(is_closed(each) for each in connections)
        assert 0 < closed < CROWD
        assert slow_closed(METRICS_PORT) >= closed
    assert "others wait for the memory" in broker.output_path.read_text()


def test_a_slow_client_alone_is_served(broker: BrokerProcess) -> None:
    frame = struct.pack(">hhih", 18, 0, 7, 4) + b"slow"
    with crowd(broker, len(frame), b"", 1) as (client,):
        for byte in frame:
            time.sleep(0.2)
            client.sendall(bytes([byte]))
        client.settimeout(10)
        assert struct.unpack(">i", client.recv(8)[4:8]) == (7,)


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        connection.setblocking(True)
