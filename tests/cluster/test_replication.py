"""Three brokers, a controller of Apache Kafka, and everything three times: what a cluster is for, in small."""

from __future__ import annotations

import shutil

import pytest

from pybroker.client.cluster import Cluster
from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.checker import check
from tests.harness.cluster.fixtures import cluster_fixture
from tests.harness.cluster.history import History
from tests.harness.cluster.load import Load, read_everything
from tests.harness.cluster.replicas import check_replicas
from tests.harness.cluster.scenario import create_topic, wait_until_healthy
from tests.harness.waiting import until

WAIT_SECONDS = 60.0
PLACES = [("t", 0), ("t", 1), ("t", 2)]


cluster = cluster_fixture(brokers=3)


def partitions(cluster: LocalCluster, asked: int, topic: str = "t") -> dict[int, tuple[int, list[int]]]:
    """(leader, ISR) of each partition, as the broker `asked` tells clients."""
    node = cluster.layout.node(asked)
    with Cluster([(node.host, node.port)]) as client:
        (found,) = client.metadata([topic]).topics
        return {each.partition_index: (each.leader_id, sorted(each.isr_nodes)) for each in found.partitions}


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
def test_a_broker_goes_and_comes_back_under_load(cluster: LocalCluster) -> None:
    create_topic(cluster, "t", 3, 3, {"min.insync.replicas": "2"})
    assert sorted(leader for leader, _ in partitions(cluster, 1).values()) == [1, 2, 3]
    history = History()
    load = Load(cluster.layout.bootstrap, PLACES, history, producers=2, members=2)
    load.start()
    load.wait_for_progress()

    assert cluster.stop(1) == 0
    until(lambda: all(isr == [2, 3] for _, isr in partitions(cluster, 2).values()), "the ISRs are without broker 1")
    load.wait_for_progress()
    cluster.start(1)
    wait_until_healthy(cluster, at_least=["t"])
    load.wait_for_progress()
    load.stop()
    read_everything(cluster.layout.bootstrap, PLACES, history)

    assert cluster.down() == []
    log_dirs = {node.node_id: cluster.log_dir(node.node_id) for node in cluster.layout.brokers}
    assert check(history) + check_replicas(log_dirs, frozenset({"t", "__consumer_offsets"})) == []
    assert history.client_errors == []
