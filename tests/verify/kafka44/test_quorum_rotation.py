"""Three of Apache Kafka's controllers, of which the active one is killed or stands still: a broker of ours stays."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.client.cluster import Cluster
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.cluster.readiness import quorum_state
from pybroker.protocol import messages as m
from tests.harness.cluster.fixtures import CONTROLLER_VERSIONS, cluster_fixture
from tests.harness.waiting import until

TIMEOUT_S = 60.0
BROKER = 1


cluster = cluster_fixture(scope="module", brokers=1, controllers=3, controller_versions=CONTROLLER_VERSIONS)


def active(cluster: LocalCluster) -> int:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        state = quorum_state(cluster.layout)
        if state is not None:
            return state.leader_id
        time.sleep(0.1)
    pytest.fail("no controller leads")


def wait_for_all_voters(cluster: LocalCluster, since_ms: float) -> None:
    """Return when the active controller has heard of every other one since that time. Before that, one more that goes
    would leave no majority, and nothing could be created until a JVM has started."""
    row = m.DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = m.DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[row])

    def all_follow() -> bool:
        node = cluster.layout.node(active(cluster))
        with Cluster([(node.host, node.port)]) as client:
            answer = client.call(m.DescribeQuorumRequest(topics=[topic]))
        (partition,) = answer.topics[0].partitions
        others = [each for each in partition.current_voters if each.replica_id != partition.leader_id]
        return len(others) == len(cluster.layout.controllers) - 1 and all(
            each.last_fetch_timestamp >= since_ms for each in others
        )

    until(all_follow, "all controllers follow the active one")


def create(bootstrap: str, name: str) -> float:
    """Create a topic; how many seconds that took."""
    started = time.monotonic()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)
    return time.monotonic() - started


@pytest.mark.parametrize(
    ("begin", "end"),
    [(LocalCluster.kill, LocalCluster.start), (LocalCluster.pause, LocalCluster.resume)],
    ids=["killed", "paused"],
)
def test_another_active_controller_is_found_before_the_session_ends(
    cluster: LocalCluster, begin: Callable[[LocalCluster, int], None], end: Callable[[LocalCluster, int], None]
) -> None:
    bootstrap = cluster.layout.node(BROKER).address
    for round_number in range(3):
        wait_for_all_voters(cluster, time.time() * 1000)
        controller = active(cluster)
        begin(cluster, controller)
        try:
            took_s = create(bootstrap, f"{begin.__name__}-{controller}-{round_number}")
        finally:
            end(cluster, controller)
        assert took_s < 9.0, "Kafka's default session, after which the broker would have been fenced"
    said = cluster.output_path(BROKER).read_text()
    assert "have fenced this broker" not in said
    assert said.count("registered with the quorum") == 1


def test_a_broker_that_stood_still_is_fenced_and_comes_back(cluster: LocalCluster) -> None:
    said_before = cluster.output_path(BROKER).read_text().count("have unfenced this broker")
    cluster.pause(BROKER)
    time.sleep(12.0)  # longer than Kafka's default session
    cluster.resume(BROKER)
    deadline = time.monotonic() + TIMEOUT_S
    while cluster.output_path(BROKER).read_text().count("have unfenced this broker") == said_before:
        assert time.monotonic() < deadline, "it was not unfenced again"
        time.sleep(0.1)
    assert "have fenced this broker" in cluster.output_path(BROKER).read_text()
    create(cluster.layout.node(BROKER).address, "afterwards")
