"""How soon a cluster with many partitions serves all of them again when it has lost a broker, and what they take."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from pybroker.client.cluster import Cluster
from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.fixtures import cluster_fixture
from tests.harness.cluster.scenario import create_topic, wait_until_healthy

PARTITION_COUNT = 2_000
MOST_SECONDS = 3.0
#: One of three is led, two are followed; nobody writes much.
MOST_BYTES_EACH = 64 << 10
WAIT_SECONDS = 120.0


cluster = cluster_fixture(brokers=3)


def leaders(cluster: LocalCluster, asked: int) -> list[int]:
    node = cluster.layout.node(asked)
    with Cluster([(node.host, node.port)]) as client:
        (found,) = client.metadata(["t"]).topics
        return [each.leader_id for each in found.partitions]


def anonymous_bytes(cluster: LocalCluster, node_id: int) -> int:
    """Memory of that broker which is no file's."""
    lines = Path(f"/proc/{cluster.process_id(node_id)}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def produce_everywhere(cluster: LocalCluster) -> None:
    """One record to each partition, acknowledged by all replicas in sync."""
    errors: list[Any] = []

    def delivered(error: Any, _message: Message) -> None:
        errors.append(error)

    producer = Producer({"bootstrap.servers": cluster.layout.bootstrap, "acks": "all", "linger.ms": 20, "log_level": 0})
    for index in range(PARTITION_COUNT):
        producer.produce("t", b"x", partition=index, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0
    assert errors == [None] * PARTITION_COUNT


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
def test_all_partitions_of_a_lost_broker_are_served_again(cluster: LocalCluster) -> None:
    before = {node.node_id: anonymous_bytes(cluster, node.node_id) for node in cluster.layout.brokers}
    create_topic(cluster, "t", PARTITION_COUNT, 3, {"min.insync.replicas": "2"})
    produce_everywhere(cluster)
    for node_id, bytes_before in before.items():
        each = (anonymous_bytes(cluster, node_id) - bytes_before) / PARTITION_COUNT
        print(f"broker {node_id}: {each / 1024:.1f} KiB of memory for each of {PARTITION_COUNT} partitions it has")
        assert each <= MOST_BYTES_EACH
    assert leaders(cluster, 2).count(1) > PARTITION_COUNT // 4
    cluster.kill(1)
    deadline = time.monotonic() + WAIT_SECONDS
    while leaders(cluster, 2).count(1) > PARTITION_COUNT // 4:
        assert time.monotonic() < deadline, "the controller has not fenced the broker"
        time.sleep(0.02)
    fenced = time.monotonic()
    produce_everywhere(cluster)
    took_seconds = time.monotonic() - fenced
    print(f"{PARTITION_COUNT} partitions served {took_seconds:.2f} s after the first sign of the broker's fencing")
    assert took_seconds <= MOST_SECONDS
    assert 1 not in leaders(cluster, 3)
    cluster.start(1)
    wait_until_healthy(cluster, at_least=["t"])
