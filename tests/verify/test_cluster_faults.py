"""Brokers and controllers of a cluster are killed, stopped, paused and cut off under load, and nothing that was
promised is broken; and what breaks a promise is found."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.client.cluster import Cluster
from pybroker.cluster.layout import NodeKind
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.testing.cluster.checker import Kind, check
from pybroker.testing.cluster.faults import FAULTS
from pybroker.testing.cluster.history import History
from pybroker.testing.cluster.load import Load, read_everything
from pybroker.testing.cluster.scenario import Scenario, create_topic, wait_until_healthy

ROUNDS = 3
SESSION_SECONDS = 6.0
OVERRIDES = {
    "broker.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "broker.heartbeat.interval.ms": "1000",
}
WAIT_SECONDS = 60.0

pytestmark = [
    pytest.mark.skipif(
        shutil.which("java") is None or shutil.which("mvn") is None,
        reason="Apache Kafka needs java, and mvn to fetch it",
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


@pytest.fixture(params=[(3, 0), (2, 2), (0, 3)], ids=["pybroker", "mixed", "JVM"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    brokers, jvm_brokers = request.param
    made = LocalCluster.make(
        tmp_path / "cluster",
        brokers=brokers,
        jvm_brokers=jvm_brokers,
        controllers=3,
        overrides=OVERRIDES,
        namespaces=True,
    )
    try:
        made.up()
        yield made
    finally:
        made.delete()


def test_nothing_promised_is_broken(cluster: LocalCluster) -> None:
    has_coordinators = any(node.kind is NodeKind.JVM_BROKER for node in cluster.layout.brokers)
    scenario = Scenario(
        cluster,
        list(FAULTS),
        rounds=ROUNDS,
        hold_seconds=(1.0, 2 * SESSION_SECONDS),
        with_transactions=has_coordinators,
    )
    report = scenario.run()
    print(*report.rounds, report, sep="\n")
    assert report.violations == []
    assert len(report.rounds) == ROUNDS * 2 * len(FAULTS)
    assert report.acknowledged_count > 20 * len(report.rounds)
    assert report.group_read_count >= report.acknowledged_count
    assert (report.committed_count > 0 and report.aborted_count > 0) is has_coordinators


@pytest.mark.parametrize(("brokers", "jvm_brokers"), [(2, 0), (0, 2)], ids=["pybroker", "JVM"])
def test_an_acknowledgement_before_replication_is_found(tmp_path: Path, brokers: int, jvm_brokers: int) -> None:
    """Producers that ask for no replication are told of records that only the leader has; it dies with them."""
    cluster = LocalCluster.make(tmp_path / "cluster", brokers=brokers, jvm_brokers=jvm_brokers, overrides=OVERRIDES)
    try:
        cluster.up()
        history = History()
        create_topic(cluster, "t", 1, 2, {"min.insync.replicas": "1"})
        load = Load(
            cluster.layout.bootstrap,
            [("t", 0)],
            history,
            producers=1,
            members=0,
            producer_settings={"acks": 1, "enable.idempotence": False},
        )
        load.start()
        load.wait_for_progress()
        leader = leader_of(cluster)
        follower = 3 - leader
        cluster.pause(follower)
        load.wait_for_progress(timeout_seconds=SESSION_SECONDS)  # or the follower would be out of the ISR in time
        cluster.kill(leader)
        cluster.resume(follower)
        load.wait_for_progress()
        cluster.start(leader)
        wait_until_healthy(cluster)
        load.stop()
        read_everything(cluster.layout.bootstrap, [("t", 0)], history)
        assert Kind.LOST in {violation.kind for violation in check(history)}
    finally:
        cluster.delete()


def leader_of(cluster: LocalCluster) -> int:
    node = cluster.layout.brokers[0]
    deadline = time.monotonic() + WAIT_SECONDS
    with Cluster([(node.host, node.port)]) as client:
        while True:
            (topic,) = client.metadata(["t"]).topics
            leader = topic.partitions[0].leader_id
            if leader >= 0:
                return int(leader)
            assert time.monotonic() < deadline
            time.sleep(0.05)
