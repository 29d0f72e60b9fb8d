"""A broker whose log was emptied, or lost its middle, after a stop in order: nothing acknowledged is lost.

The controllers are Apache Kafka's. A broker that misses records registers as after an unclean stop, so they take it out
of the ISR and of the eligible leader replicas (KIP-966), and it fetches again what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from pybroker.client.cluster import Cluster
from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.fixtures import cluster_fixture, needs_kafka
from tests.harness.cluster.replicas import check_replicas
from tests.harness.cluster.scenario import create_topic, wait_until_healthy
from tests.harness.waiting import until

pytestmark = needs_kafka

RECORDS = 300
PER_SEGMENT_BYTES = "1048576"
BATCHES = 8
WAIT_SECONDS = 60.0

cluster = cluster_fixture(
    brokers=3, overrides={"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"}
)


def partition(cluster: LocalCluster, asked: int) -> Any:
    node = cluster.layout.node(asked)
    with Cluster([(node.host, node.port)]) as client:
        (found,) = client.metadata(["t"]).topics
        return found.partitions[0]


def produce(cluster: LocalCluster, first: int, count: int) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.layout.bootstrap, "acks": "all", "log_level": 2})
    for number in range(first, first + count):
        value = b"%d " % number + bytes(20_000)
        producer.produce("t", value=value, partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0
    assert errors == [None] * count


def consumed(cluster: LocalCluster, count: int) -> list[tuple[int, int]]:
    """(offset, number) of `count` records from the beginning."""
    consumer = Consumer({"bootstrap.servers": cluster.layout.bootstrap, "group.id": "g", "log_level": 2})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    found: list[tuple[int, int]] = []

    def take() -> bool:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None, message.error()
            found.append((message.offset(), int(message.value().split(b" ")[0])))
        return len(found) >= count

    until(take, f"{count} records can be read")
    consumer.close()
    return found


def _empty_active(log: Path) -> None:
    max(log.glob("*.log")).write_bytes(b"")


def _remove_middle(log: Path) -> None:
    logs = sorted(log.glob("*.log"))
    assert len(logs) >= 3
    logs[1].unlink()


def _remove_directory(log: Path) -> None:
    for path in log.iterdir():
        path.unlink()
    log.rmdir()


Damage = Callable[[Path], None]


@pytest.mark.parametrize("damage", [_empty_active, _remove_middle, _remove_directory])
def test_the_last_leader_has_lost_its_log(cluster: LocalCluster, damage: Damage) -> None:
    create_topic(cluster, "t", 1, 3, {"min.insync.replicas": "2", "segment.bytes": PER_SEGMENT_BYTES})
    produce(cluster, 0, RECORDS)
    leader = partition(cluster, 1).leader_id
    first, second = sorted({1, 2, 3} - {leader})
    # The leader goes last, so the controllers would have it lead again as soon as it is back.
    for node in (first, second, leader):
        assert cluster.stop(node) == 0
    damage(cluster.log_dir(leader) / "t-0")
    cluster.start(leader)
    until(
        lambda: "does not lead before it has all of it" in cluster.output_tail(leader) or cluster.state(leader) != "up",
        "the broker says what it misses",
    )
    cluster.start(second)
    cluster.start(first)
    wait_until_healthy(cluster, at_least=["t"])
    assert consumed(cluster, RECORDS) == [(number, number) for number in range(RECORDS)]
    produce(cluster, RECORDS, 10)
    until(lambda: set(partition(cluster, first).isr_nodes) == {1, 2, 3}, "all replicas are in sync again")
    assert consumed(cluster, RECORDS + 10) == [(number, number) for number in range(RECORDS + 10)]
    # In the ISR again it may lead, and a later start misses nothing.
    assert cluster.stop(leader) == 0
    size = len(cluster.output_path(leader).read_text(errors="replace"))
    cluster.start(leader)
    until(lambda: set(partition(cluster, first).isr_nodes) == {1, 2, 3}, "the broker is back")
    assert "are lost" not in cluster.output_path(leader).read_text(errors="replace")[size:]
    assert cluster.down() == []
    log_dirs = {node.node_id: cluster.log_dir(node.node_id) for node in cluster.layout.brokers}
    assert check_replicas(log_dirs, frozenset({"t"})) == []
