"""Brokers of a cluster move from Apache Kafka to pybroker and back under load, one at a time over the same log dirs."""

from __future__ import annotations

import time

from pybroker.cluster.adoption import examine_adoption
from pybroker.cluster.layout import NodeKind
from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.fixtures import CONTROLLER_VERSIONS, cluster_fixture, needs_kafka
from tests.harness.cluster.scenario import Scenario, wait_until_healthy

pytestmark = needs_kafka


cluster = cluster_fixture(jvm_brokers=3, controllers=1, controller_versions=CONTROLLER_VERSIONS)


def move(cluster: LocalCluster, scenario: Scenario, node_id: int, kind: NodeKind) -> float:
    """Have the other program run that broker; the longest time without an acknowledgement meanwhile, in seconds."""
    began = time.monotonic()
    assert cluster.stop(node_id) in (0, 143)  # 143: a JVM after SIGTERM
    assert examine_adoption([cluster.log_dir(node_id)]) == []
    cluster.set_kind(node_id, kind)
    cluster.start(node_id)
    wait_until_healthy(cluster)
    scenario.load.wait_for_progress()
    return scenario.history.longest_silence(began, time.monotonic())


def test_there_and_back_again(cluster: LocalCluster) -> None:
    scenario = Scenario(cluster, [])
    with scenario.under_load():
        for kind in (NodeKind.BROKER, NodeKind.JVM_BROKER):
            for node in cluster.layout.brokers:
                silence = move(cluster, scenario, node.node_id, kind)
                print(f"node {node.node_id} to {kind}: silence {silence:.1f} s")
    report = scenario.judge()
    assert report.violations == []
    assert report.unknown_count == 0
