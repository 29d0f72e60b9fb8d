"""A broker that ran alone goes on in a cluster of Apache Kafka's controllers: with its topics, records, settings,
groups and producers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.cli.main import main
from pybroker.cluster.ports import free_port
from pybroker.metadata.log_files import PARTITION_DIRECTORY
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.cluster.fixtures import needs_kafka
from tests.harness.cluster.nodes import Nodes, single_broker

TIMEOUT_S = 60.0
TOPIC, GROUP = "kept", "readers"

pytestmark = needs_kafka


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with Nodes() as made:
        yield made


def call(port: int, request: m.Message, version: int) -> Any:
    with ProtocolClient(port) as client:
        return client.call(request, version)


def state(port: int) -> dict[str, object]:
    """What clients are told that has to be the same before and after."""
    topics = call(port, m.MetadataRequest(topics=None), 12).topics
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=TOPIC, configuration_keys=["retention.ms"]
    )
    (configs,) = call(port, m.DescribeConfigsRequest(resources=[resource]), 4).results
    asked = m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])
    (producers,) = call(port, m.DescribeProducersRequest(topics=[asked]), 0).topics
    return {
        "topics": sorted((each.name, each.topic_id, len(each.partitions)) for each in topics),
        "configs": [(each.name, each.value) for each in configs.configs],
        "producers": [
            (each.producer_id, each.producer_epoch, each.last_sequence)
            for each in producers.partitions[0].active_producers
        ],
    }


def producer_id(port: int) -> int:
    """A new one. Clients ask again until the broker has its first block of ids."""
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    deadline_s = time.monotonic() + TIMEOUT_S
    while (answer := call(port, request, 4)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        assert time.monotonic() < deadline_s, "the broker gets no producer ids"
        time.sleep(0.05)
    assert answer.error_code == 0
    return int(answer.producer_id)


def produce(producer: Producer, *values: str) -> list[int]:
    """The offsets they got."""
    offsets: list[int] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for value in values:
        producer.produce(TOPIC, value, partition=0, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    return offsets


def consume(port: int, count: int) -> list[str]:
    """So many records of the group's, which are committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    try:
        messages = consumer.consume(count, TIMEOUT_S)
        assert all(each.error() is None for each in messages)
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, (messages[-1].offset() or 0) + 1)], asynchronous=False)
        return [(each.value() or b"").decode() for each in messages]
    finally:
        consumer.close()


def test_all_that_there_was_is_there_and_back_again(tmp_path: Path, nodes: Nodes) -> None:
    port, controller_port = free_port(), free_port()
    properties = single_broker(tmp_path, port)
    broker = nodes.serve(properties)
    bootstrap = {"bootstrap.servers": f"127.0.0.1:{port}"}
    topic = NewTopic(TOPIC, 2, 1, config={"retention.ms": "86400001"})
    admin = AdminClient(bootstrap)
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    producer = Producer({**bootstrap, "enable.idempotence": True, "log_level": 0})
    assert produce(producer, "zero", "one", "two") == [0, 1, 2]
    assert consume(port, 2) == ["zero", "one"]
    before, ids = state(port), [producer_id(port)]
    assert before["producers"]
    assert broker.stop() == 0

    grow = ["cluster", "grow", str(properties), "--controller", f"100@127.0.0.1:{controller_port}"]
    checked = CliRunner().invoke(main, [*grow, "--check"])
    assert checked.exit_code == 3, "brokers elsewhere would not reach it: of loopback is warned"
    assert "address: PLAINTEXT://127.0.0.1" in checked.stdout
    assert (tmp_path / "data" / PARTITION_DIRECTORY).is_dir()
    done = CliRunner().invoke(main, [*grow, "--output", str(tmp_path / "grown")])
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "data" / PARTITION_DIRECTORY).exists()

    (controller,) = nodes.kafka(tmp_path / "grown" / "controller-100" / "server.properties")
    broker = nodes.serve(tmp_path / "grown" / "broker-1.properties")
    assert state(port) == before
    ids.append(producer_id(port))
    assert produce(producer, "three") == [3], "the producer goes on with its sequence numbers"
    assert consume(port, 2) == ["two", "three"]
    admin = AdminClient(bootstrap)
    admin.create_topics([NewTopic("new", 1, 1)])["new"].result(TIMEOUT_S)

    grown = state(port)
    assert broker.stop() == 0
    assert controller.stop() in (0, 143), "143: a JVM after SIGTERM"
    controller_dir = str(tmp_path / "grown" / "controller-100" / "data")
    done = CliRunner().invoke(main, ["cluster", "shrink", str(properties), "--controller-dir", controller_dir])
    assert done.exit_code == 0, done.output
    nodes.serve(properties)
    assert state(port) == grown
    ids.append(producer_id(port))
    assert ids == sorted(set(ids)), "no id is given out twice"
    assert produce(producer, "four") == [4]
    assert consume(port, 1) == ["four"]
