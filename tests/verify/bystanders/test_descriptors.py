"""A broker with 256 file descriptors: clear refusals, and clients connect, whatever takes the descriptors."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import build_plain
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.waiting import until

LIMIT = 256
#: Of that limit, beside the clients' share and what is kept.
ROOM = 140


@pytest.fixture(params=["epoll", "io_uring"])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"pybroker.io.backend": str(request.param)}


@pytest.fixture
def broker(settings: dict[str, str], tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", overrides=settings, command_prefix=limited(LIMIT)) as running:
        yield running


def limited(count: int) -> list[str]:
    return ["prlimit", f"--nofile={count}:{count}"]


def create(broker: BrokerProcess, name: str, count: int) -> m.CreateTopicsResponse.CreatableTopicResult:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    with ProtocolClient(broker.port) as client:
        response: m.CreateTopicsResponse = client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    return response.topics[0]


def produce(broker: BrokerProcess, topic: str, index: int = 0) -> int:
    data = m.ProduceRequest.PartitionProduceData(
        index=index, records=build_plain(0, [(b"k", b"v")], timestamp_ms=int(time.time() * 1000))
    )
    request = m.ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    with ProtocolClient(broker.port) as client:
        code: int = client.call(request, 9).responses[0].partition_responses[0].error_code
    return code


def test_partitions_that_find_no_descriptors_are_refused(broker: BrokerProcess) -> None:
    refused = create(broker, "large", 500)
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert re.search(r"limit of 256 file descriptors.*LimitNOFILE", refused.error_message or "")
    created = 0
    while create(broker, f"t{created}", 20).error_code == 0:
        created += 1
    assert created == ROOM // 20
    with ProtocolClient(broker.port) as client:
        more = m.CreatePartitionsRequest.CreatePartitionsTopic(name="t0", count=60, assignments=None)
        response = client.call(m.CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 3)
    assert response.results[0].error_code == ErrorCode.POLICY_VIOLATION
    for _ in range(50):  # clients connect, one after the other
        assert produce(broker, "t0") == 0
    with ExitStack() as stack:  # and beside each other
        clients = [stack.enter_context(ProtocolClient(broker.port)) for _ in range(LIMIT // 8)]
        assert all(each.call(m.MetadataRequest(topics=[]), 9).brokers for each in clients)
    assert "Too many open files" not in broker.output_path.read_text()


def test_connections_leave_descriptors_to_logs(broker: BrokerProcess) -> None:
    assert create(broker, "t", 4).error_code == 0
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 10)) for _ in range(2 * LIMIT)]
        until(lambda: "refusing connections" in broker.output_path.read_text())
        served = sum(not is_closed(each) for each in held)
        assert LIMIT // 4 < served < LIMIT
    until(lambda: can_connect(broker))
    assert produce(broker, "t") == 0
    lines = [each for each in broker.output_path.read_text().splitlines() if "refusing connections" in each]
    assert len(lines) < 10
    assert "LimitNOFILE" in lines[0]


def test_partitions_without_descriptors_at_the_start_are_served_later(settings: dict[str, str], tmp_path: Path) -> None:
    counts = {"kept": 120, "gone": 180}
    with BrokerProcess(tmp_path / "data", overrides=settings) as before:
        for name, count in counts.items():
            assert create(before, name, count).error_code == 0
            assert all(produce(before, name, index) == 0 for index in range(0, count, 30))
    with BrokerProcess(tmp_path / "data", overrides=settings, command_prefix=limited(LIMIT)) as broker:
        text = broker.output_path.read_text()
        assert text.count("no file descriptor is left for it") == sum(counts.values()) - ROOM
        codes = [produce(broker, name, index) for name, count in counts.items() for index in range(count)]
        assert (codes.count(0), set(codes)) == (ROOM, {0, ErrorCode.KAFKA_STORAGE_ERROR})
        delete(broker, "gone")
        until(lambda: all(produce(broker, "kept", index) == 0 for index in range(counts["kept"])))


def delete(broker: BrokerProcess, name: str) -> None:
    state = m.DeleteTopicsRequest.DeleteTopicState(name=name)
    with ProtocolClient(broker.port) as client:
        response = client.call(m.DeleteTopicsRequest(topics=[state], timeout_ms=30_000), 6)
    assert response.responses[0].error_code == 0


def can_connect(broker: BrokerProcess) -> bool:
    try:
        with ProtocolClient(broker.port, timeout_seconds=5) as client:
            return bool(client.call(m.MetadataRequest(topics=[]), 9).brokers)
    except OSError:
        return False


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
