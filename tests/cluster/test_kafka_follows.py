"""An Apache Kafka broker as the follower of a partition that is led here: acks=all waits for it, and it gets the same
bytes."""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.client.cluster import Cluster
from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.fixtures import cluster_fixture
from tests.harness.cluster.replicas import check_replicas
from tests.harness.waiting import until

LEADER, FOLLOWER = 1, 2
WAIT_SECONDS = 60.0
RECORDS = 500


cluster = cluster_fixture(brokers=1, jvm_brokers=1, overrides={"replica.lag.time.max.ms": "5000"})


def isr_of(cluster: LocalCluster) -> list[int]:
    """The ISR of t-0 as its leader tells it."""
    node = cluster.layout.node(LEADER)
    with Cluster([(node.host, node.port)]) as client:
        (topic,) = client.metadata(["t"]).topics
        return sorted(topic.partitions[0].isr_nodes)


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
def test_acks_all_waits_for_a_follower_that_stands_still(cluster: LocalCluster) -> None:
    node = cluster.layout.node(LEADER)
    bootstrap = {"bootstrap.servers": f"{node.host}:{node.port}"}
    topic = NewTopic(
        "t", num_partitions=1, replica_assignment=[[LEADER, FOLLOWER]], config={"min.insync.replicas": "2"}
    )
    admin = AdminClient(bootstrap)
    admin.create_topics([topic])["t"].result(WAIT_SECONDS)
    until(lambda: isr_of(cluster) == [LEADER, FOLLOWER], "both replicas are in sync")
    producer = Producer({**bootstrap, "acks": "all", "enable.idempotence": True, "delivery.timeout.ms": 180_000})
    errors: list[object] = []
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_SECONDS) == 0
    assert errors == [None] * RECORDS

    cluster.pause(FOLLOWER)
    try:
        producer.produce("t", b"alone", partition=0, on_delivery=lambda error, _: errors.append(error))
        until(lambda: isr_of(cluster) == [LEADER], "the follower is out of the ISR")
        producer.poll(0)
        assert len(errors) == RECORDS, "a record was acknowledged that one replica has, where two are asked for"
    finally:
        cluster.resume(FOLLOWER)
    until(lambda: isr_of(cluster) == [LEADER, FOLLOWER], "the follower is in sync again")
    assert producer.flush(WAIT_SECONDS) == 0
    assert errors == [None] * (RECORDS + 1)

    assert cluster.down() == []
    log_dirs = {node_id: cluster.log_dir(node_id) for node_id in (LEADER, FOLLOWER)}
    assert check_replicas(log_dirs, frozenset({"t"})) == []
    logs = [(path / "t-0" / "00000000000000000000.log").read_bytes() for path in log_dirs.values()]
    assert logs[0] == logs[1] != b""
