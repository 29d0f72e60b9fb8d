"""From one broker to three of both kinds, led by three controllers of Apache Kafka: the way of docs/growing.md."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.cli.main import main
from pybroker.client import groups, topics
from pybroker.client.cluster import Cluster
from pybroker.cluster.jars import run_tool
from pybroker.cluster.ports import free_port
from pybroker.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, MAX_METADATA_VERSION, METADATA_VERSION
from pybroker.metadata.log_files import PARTITION_DIRECTORY
from tests.harness.cluster.fixtures import needs_kafka
from tests.harness.cluster.nodes import Nodes, single_broker, write_properties
from tests.harness.waiting import until

TIMEOUT_S = 120.0
TOPIC, GROUP = "kept", "readers"
PARTITIONS, RECORDS = 3, 300
CONTROLLER_IDS = (100, 101, 102)

pytestmark = needs_kafka


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with Nodes() as made:
        yield made


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def fill_in(template: Path, node_id: int, port: int, log_dir: Path) -> Path:
    """As whoever adds a broker does."""
    settings = dict(line.split("=", 1) for line in template.read_text().splitlines())
    address = f"PLAINTEXT://127.0.0.1:{port}"
    own = {"node.id": str(node_id), "listeners": address, "advertised.listeners": address, "log.dirs": str(log_dir)}
    return write_properties(template.with_name(f"broker-{node_id}.properties"), settings | own)


class Work:
    """What clients did, to be found again."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self.sent = 0

    def produce(self, count: int) -> None:
        errors: list[object] = []
        for number in range(self.sent, self.sent + count):
            self.producer.produce(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=lambda error, _: errors.append(error)
            )
        assert self.producer.flush(TIMEOUT_S) == 0
        assert errors == [None] * count
        self.sent += count

    def read_all(self) -> dict[int, list[bytes]]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        found: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while sum(map(len, found.values())) < self.sent and time.monotonic() < deadline:
                for message in consumer.consume(1000, 0.2):
                    assert message.error() is None, message.error()
                    assert len(found[message.partition() or 0]) == message.offset()
                    found[message.partition() or 0].append(message.value() or b"")
            return found
        finally:
            consumer.close()

    def expected(self) -> dict[int, list[bytes]]:
        return {
            index: [b"%d" % number for number in range(self.sent) if number % PARTITIONS == index]
            for index in range(PARTITIONS)
        }


def connected(bootstrap: str) -> Cluster:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    return Cluster([(host, int(port))])


def committed(bootstrap: str) -> dict[tuple[str, int], int]:
    with connected(bootstrap) as cluster:
        return dict(cluster.retry(lambda: groups.committed(cluster, GROUP)))


def described(bootstrap: str) -> list[topics.Topic]:
    with connected(bootstrap) as cluster:
        return topics.describe(cluster)


def start_alone(directory: Path, port: int) -> Path:
    return single_broker(
        directory,
        port,
        log_dirs=f"{directory / 'first'},{directory / 'second'}",
        offsets_topic_num_partitions="3",
        num_partitions="2",
        broker_session_timeout_ms="6000",
    )


def fill(work: Work, admin: AdminClient) -> None:
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "86400001"})
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    work.produce(RECORDS)
    consumer = Consumer({"bootstrap.servers": work.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    offsets = [TopicPartition(TOPIC, index, 10 + index) for index in range(PARTITIONS)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def test_from_one_to_three(tmp_path: Path, nodes: Nodes) -> None:
    ports = {node_id: free_port() for node_id in (1, 2, 3, *CONTROLLER_IDS)}
    alone = f"127.0.0.1:{ports[1]}"
    properties = start_alone(tmp_path, ports[1])
    broker = nodes.serve(properties)
    work, admin = Work(alone), AdminClient({"bootstrap.servers": alone})
    fill(work, admin)
    before = {each.name: each.id for each in described(alone)}
    offsets = committed(alone)
    assert offsets == {(TOPIC, index): 10 + index for index in range(PARTITIONS)}
    assert broker.stop() == 0

    output = tmp_path / "grown"
    options = [f"--controller={node_id}@127.0.0.1:{ports[node_id]}" for node_id in CONTROLLER_IDS]
    run("cluster", "grow", str(properties), *options, "--output", str(output))
    dumped_by_kafka(output)
    nodes.kafka(*(output / f"controller-{node_id}" / "server.properties" for node_id in CONTROLLER_IDS))
    first = nodes.serve(output / "broker-1.properties")
    assert {each.name: each.id for each in described(alone)} == before
    assert committed(alone) == offsets
    work.produce(RECORDS)
    status = tool("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", alone, "describe", "--status")
    assert all(f'"id": {node_id}' in status for node_id in CONTROLLER_IDS), status

    cluster_id = re.search(r"ClusterId:\s+(\S+)", status)
    assert cluster_id is not None
    nodes.serve(fill_in(output / "another-broker.properties", 2, ports[2], tmp_path / "two"))
    third = fill_in(output / "another-broker.properties", 3, ports[3], tmp_path / "three")
    tool("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id[1], "--config", str(third))
    nodes.kafka(third)
    until(lambda: broker_ids(alone) == [1, 2, 3], "three brokers are there")
    plan = json.loads(run("topics", "reassign", "--bootstrap-server", alone, "--replication-factor", "3"))
    assert {each["topic"] for each in plan["partitions"]} == {TOPIC, "__consumer_offsets"}
    run("topics", "reassign", "--bootstrap-server", alone, "--replication-factor", "3", "--execute")
    # The controllers have said that it is done: a broker may know of it later.
    until(lambda: all(sorted(each.isr) == [1, 2, 3] for each in partitions(alone)), "all replicas are in sync")
    setting = ["--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "min.insync.replicas=2"]
    tool("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", alone, *setting)
    elect = ["--election-type", "preferred", "--all-topic-partitions"]
    tool("org.apache.kafka.tools.LeaderElectionCommand", "--bootstrap-server", alone, *elect)
    work.produce(RECORDS)
    assert {each.leader for topic in described(alone) for each in topic.partitions} == {1, 2, 3}

    first.signal(signal.SIGKILL)
    rest = f"127.0.0.1:{ports[2]},127.0.0.1:{ports[3]}"
    until(lambda: all(each.leader in (2, 3) for each in partitions(rest)), "others lead what the first broker led")
    work.bootstrap = rest
    work.produce(RECORDS)
    assert work.read_all() == work.expected()
    assert committed(rest) == offsets


def dumped_by_kafka(output: Path) -> None:
    """Apache Kafka's tool reads all of a controller's snapshot."""
    (snapshot,) = (output / "controller-100" / "data" / PARTITION_DIRECTORY).glob("*.checkpoint")
    text = tool("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(snapshot))
    assert "isvalid: false" not in text and "unable to decode" not in text.lower()
    records = [json.loads(each) for each in re.findall(r"payload: (\{.*\})", text)]
    kinds = [each["type"] for each in records]
    assert kinds.count("TOPIC_RECORD") == 2
    assert kinds.count("PARTITION_RECORD") == PARTITIONS + 3
    levels = {each["data"]["name"]: each["data"]["featureLevel"] for each in records if "FEATURE" in each["type"]}
    newest = {METADATA_VERSION: MAX_METADATA_VERSION, ELIGIBLE_LEADER_REPLICAS_VERSION: 1}
    assert levels == newest
    assert "KRaftVoters" in text


def tool(main_class: str, *arguments: str) -> str:
    return run_tool(main_class, *arguments).stdout.decode()


def broker_ids(bootstrap: str) -> list[int]:
    with connected(bootstrap) as cluster:
        return cluster.nodes()


def partitions(bootstrap: str) -> list[Any]:
    return [each for topic in described(bootstrap) for each in topic.partitions]


def test_the_metadata_log_is_put_back(tmp_path: Path, nodes: Nodes) -> None:
    port = free_port()
    properties = start_alone(tmp_path, port)
    broker = nodes.serve(properties)
    work, admin = Work(f"127.0.0.1:{port}"), AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    fill(work, admin)
    assert broker.stop() == 0
    output = tmp_path / "grown"
    run("cluster", "grow", str(properties), f"--controller=100@127.0.0.1:{free_port()}", "--output", str(output))
    with pytest.raises(Exception, match="has no __cluster_metadata-0"):
        nodes.serve(properties)
    shutil.copytree(output / "single" / PARTITION_DIRECTORY, tmp_path / "first" / PARTITION_DIRECTORY)
    nodes.serve(properties)
    work.produce(RECORDS)
    assert work.read_all() == work.expected()
    assert committed(work.bootstrap) == {(TOPIC, index): 10 + index for index in range(PARTITIONS)}
