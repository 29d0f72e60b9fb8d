"""Which broker coordinates a group, as brokers of both kinds tell it: whatever the setting of each, and while
partitions are added to the topic that knows of the groups."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from pybroker.client.connection import Connection
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from tests.harness.cluster.fixtures import CONTROLLER_VERSIONS, needs_kafka
from tests.harness.waiting import until

OURS, KAFKAS, CONTROLLER = 1, 2, 100
WAIT_SECONDS = 60.0
GROUPS = [f"group-{number}" for number in range(60)]
COUNT_SETTING = "offsets.topic.num.partitions"

pytestmark = needs_kafka


def coordinators(cluster: LocalCluster, asked: int) -> dict[str, int]:
    """The coordinator of each group, as that broker says."""
    node = cluster.layout.node(asked)
    found: dict[str, int] = {}

    def all_are_known() -> bool:
        with Connection(node.host, node.port, timeout_seconds=WAIT_SECONDS) as connection:
            answer = connection.call(m.FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS), 4)
        found.update({each.key: each.node_id for each in answer.coordinators if each.error_code == ErrorCode.NONE})
        return all(each.error_code == ErrorCode.NONE for each in answer.coordinators)

    until(all_are_known, f"broker {asked} knows of all coordinators")
    return found


def add_partitions(cluster: LocalCluster, count: int) -> None:
    """To the offsets topic, until both brokers know of them."""
    admin = AdminClient({"bootstrap.servers": cluster.layout.node(KAFKAS).address})
    for future in admin.create_partitions([NewPartitions("__consumer_offsets", count)]).values():
        future.result(WAIT_SECONDS)
    for node in cluster.layout.brokers:
        one = AdminClient({"bootstrap.servers": node.address})
        until(
            lambda one=one: len(one.list_topics("__consumer_offsets").topics["__consumer_offsets"].partitions) == count,
            f"broker {node.node_id} knows of the new partitions",
        )


@pytest.mark.parametrize("controller_version", CONTROLLER_VERSIONS)
def test_both_kinds_name_the_same_coordinators(tmp_path: Path, controller_version: str) -> None:
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    cluster = LocalCluster.make(
        tmp_path / "cluster",
        brokers=1,
        jvm_brokers=1,
        overrides=settings | {COUNT_SETTING: "5"},
        controller_version=controller_version,
    )
    try:
        cluster.start(CONTROLLER)
        cluster.start(KAFKAS)
        cluster.layout = dataclasses.replace(cluster.layout, overrides=settings | {COUNT_SETTING: "9"})
        cluster.start(OURS)
        cluster.wait_until_ready()
        before = coordinators(cluster, KAFKAS)
        assert set(before.values()) == {OURS, KAFKAS}
        assert coordinators(cluster, OURS) == before
        add_partitions(cluster, 8)
        assert coordinators(cluster, KAFKAS) == before, "what Apache Kafka does"
        assert coordinators(cluster, OURS) == before
        for node_id in (OURS, KAFKAS):
            cluster.stop(node_id)
        cluster.up()
        after = coordinators(cluster, KAFKAS)
        assert after != before
        assert coordinators(cluster, OURS) == after
    finally:
        cluster.delete()
