"""Brokers and controllers of a cluster are killed, stopped, paused and cut off under load, their disks get slow and
their clocks are stepped, and nothing that was promised is broken; and what breaks a promise is found."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from pybroker.client.cluster import Cluster
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.protocol.kafka_version import KAFKA_VERSION
from tests.harness.cluster.checker import Kind, check
from tests.harness.cluster.faults import FAULTS
from tests.harness.cluster.fixtures import CONTROLLER_VERSIONS, needs_kafka, running_cluster
from tests.harness.cluster.history import History
from tests.harness.cluster.load import Load, read_everything
from tests.harness.cluster.rounds import Composition, play_rounds
from tests.harness.cluster.scenario import create_topic, wait_until_healthy
from tests.harness.rounds import Rounds

#: With controllers of another version than the reference one will do: a round has every fault of a controller.
ROUNDS, ROUNDS_OF_OTHERS = 3, 1
SESSION_SECONDS = 6.0
OVERRIDES = {
    "broker.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "broker.heartbeat.interval.ms": "1000",
}
WAIT_SECONDS = 60.0

pytestmark = [
    needs_kafka,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and disks of one's own need root"),
]


#: Apache Kafka's brokers alone show that the test is fair to them; the reference's controllers are enough for that.
COMPOSITIONS = {
    f"{name}-controllers {version}": Composition(brokers, jvm_brokers, controller_version=version)
    for name, (brokers, jvm_brokers) in {"pybroker": (3, 0), "mixed": (2, 2), "JVM": (0, 3)}.items()
    for version in CONTROLLER_VERSIONS
    if brokers > 0 or version == KAFKA_VERSION
}


@pytest.mark.parametrize("composition", COMPOSITIONS.values(), ids=list(COMPOSITIONS))
def test_nothing_promised_is_broken(composition: Composition, tmp_path: Path, rounds: Rounds) -> None:
    """Each round on a cluster of its own."""
    count = ROUNDS if composition.controller_version == KAFKA_VERSION else ROUNDS_OF_OTHERS
    for each in rounds.left(count, seed=1):
        with each:
            report = play_rounds(
                tmp_path / f"cluster-{each.number}",
                composition,
                rounds=1,
                seed=each.seed,
                on_round=lambda done: print(done, flush=True),
            )
            print(report)
            each.facts |= {
                "acknowledged": report.acknowledged_count,
                "committed": report.committed_count,
                "aborted": report.aborted_count,
                "stuck_members": report.stuck_member_count,
            }
            assert report.violations == []
            for node_ids in ({1, 2, 3, 4}, {100, 101, 102}):
                happenings = [one for done in report.rounds for one in done.happenings]
                assert Counter(name for name, node_id in happenings if node_id in node_ids) == dict.fromkeys(FAULTS, 1)
            assert report.acknowledged_count > 40 * len(report.rounds)
            assert report.group_read_count >= report.acknowledged_count
    rounds.require_all()
    assert (rounds.total("committed") > 0 and rounds.total("aborted") > 0) is composition.has_coordinators


@pytest.mark.parametrize(("brokers", "jvm_brokers"), [(2, 0), (0, 2)], ids=["pybroker", "JVM"])
def test_an_acknowledgement_before_replication_is_found(tmp_path: Path, brokers: int, jvm_brokers: int) -> None:
    """Producers that ask for no replication are told of records that only the leader has; it dies with them."""
    with running_cluster(
        tmp_path / "cluster", brokers=brokers, jvm_brokers=jvm_brokers, overrides=OVERRIDES
    ) as cluster:
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
