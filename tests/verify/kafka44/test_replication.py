"""What administrators and clients do to a cluster of three brokers: replicas and leaders move, records go, groups move
with their coordinators, and too few in sync take no records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from pybroker.client.cluster import Cluster
from pybroker.cluster import local_cluster
from pybroker.cluster.layout import Layout, Node
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.cluster.settings import node_properties
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from tests.harness.cluster.checker import check
from tests.harness.cluster.fixtures import (
    CONTROLLER_VERSIONS,
    cluster_fixture,
    needs_kafka,
    running_cluster,
)
from tests.harness.cluster.history import History
from tests.harness.cluster.load import GROUP, Load, read_everything
from tests.harness.cluster.replicas import check_replicas
from tests.harness.cluster.scenario import create_topic, wait_until_healthy
from tests.harness.waiting import until

WAIT_SECONDS = 60.0
#: How a broker of ours ends in order, and a JVM.
ENDED = (0, 143)
OVERRIDES = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"}

pytestmark = needs_kafka


cluster = cluster_fixture(
    compositions={"3 brokers": (3, 0), "2 brokers and a JVM": (2, 1)},
    overrides=OVERRIDES,
    controller_versions=CONTROLLER_VERSIONS,
)


def call(cluster: LocalCluster, request: m.Message, asked: int = 1) -> Any:
    node = cluster.layout.node(asked)
    with Cluster([(node.host, node.port)]) as client:
        return client.call(request)


def partition(cluster: LocalCluster, topic: str, index: int = 0, asked: int = 1) -> Any:
    """Its row of Metadata, as the broker `asked` tells clients."""
    node = cluster.layout.node(asked)
    with Cluster([(node.host, node.port)]) as client:
        (found,) = client.metadata([topic]).topics
        return found.partitions[index]


def reassign(cluster: LocalCluster, topic: str, replicas: list[int]) -> None:
    row = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
    wanted = m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[row])
    answer = call(cluster, m.AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=[wanted]))
    assert answer.error_code == 0, answer
    assert [each.error_code for each in answer.responses[0].partitions] == [0], answer


def produce(cluster: LocalCluster, topic: str, count: int, **settings: Any) -> list[str | None]:
    """The error of each record, None for those that were acknowledged."""
    errors: list[str | None] = []

    def delivered(error: Any, _message: Message) -> None:
        errors.append(None if error is None else error.name())

    producer = Producer({"bootstrap.servers": cluster.layout.bootstrap, "acks": "all", "log_level": 2, **settings})
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=0, on_delivery=delivered)
    assert producer.flush(WAIT_SECONDS) == 0
    return errors


def test_replicas_move_under_load(cluster: LocalCluster) -> None:
    create_topic(cluster, "t", 1, 2, {"min.insync.replicas": "2"})
    history, place = History(), ("t", 0)
    load = Load(cluster.layout.bootstrap, [place], history, producers=2, members=1)
    load.start()
    load.wait_for_progress()
    before = set(partition(cluster, "t").replica_nodes)
    (stranger,) = {1, 2, 3} - before
    staying = max(before)
    (leaving,) = before - {staying}
    reassign(cluster, "t", [stranger, staying])
    until(
        lambda: (
            set(partition(cluster, "t").replica_nodes) == set(partition(cluster, "t").isr_nodes) == {stranger, staying}
        ),
        "the replicas have moved",
    )
    load.wait_for_progress()
    until(lambda: not (cluster.log_dir(leaving) / "t-0").exists(), "the log that was left is deleted")
    # Whoever asks the broker that has left is told to look again.
    row = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = m.ListOffsetsRequest(topics=[m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[row])])
    answer = call(cluster, request, asked=leaving)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    reassign(cluster, "t", [1, 2, 3])
    until(lambda: set(partition(cluster, "t").isr_nodes) == {1, 2, 3}, "all three are in sync")
    load.wait_for_progress()
    load.stop()
    read_everything(cluster.layout.bootstrap, [place], history)
    assert cluster.down() == []
    log_dirs = {node.node_id: cluster.log_dir(node.node_id) for node in cluster.layout.brokers}
    assert check(history) + check_replicas(log_dirs, frozenset({"t"})) == []
    assert history.client_errors == []


def test_a_killed_leader_gets_its_place_back(cluster: LocalCluster) -> None:
    create_topic(cluster, "t", 1, 3, {"min.insync.replicas": "2"})
    history, place = History(), ("t", 0)
    preferred = partition(cluster, "t").replica_nodes[0]
    other = next(node for node in (1, 2, 3) if node != preferred)
    assert partition(cluster, "t").leader_id == preferred
    load = Load(cluster.layout.bootstrap, [place], history, producers=2, members=2)
    load.start()
    load.wait_for_progress()
    cluster.kill(preferred)
    until(lambda: partition(cluster, "t", asked=other).leader_id not in (preferred, -1), "another one leads")
    load.wait_for_progress()
    cluster.start(preferred)
    wait_until_healthy(cluster, at_least=["t"])
    wanted = m.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
    answer = call(cluster, m.ElectLeadersRequest(election_type=0, topic_partitions=[wanted], timeout_ms=30_000))
    assert answer.error_code == 0
    until(
        lambda: all(partition(cluster, "t", asked=node).leader_id == preferred for node in (1, 2, 3)),
        "the preferred leader leads",
    )
    load.wait_for_progress()
    load.stop()
    read_everything(cluster.layout.bootstrap, [place], history)
    assert cluster.down() == []
    log_dirs = {node.node_id: cluster.log_dir(node.node_id) for node in cluster.layout.brokers}
    assert check(history) + check_replicas(log_dirs, frozenset({"t", "__consumer_offsets"})) == []


def test_too_few_in_sync_take_no_records(cluster: LocalCluster) -> None:
    create_topic(cluster, "t", 1, 2, {"min.insync.replicas": "2"})
    assert produce(cluster, "t", 10) == [None] * 10
    first, second = partition(cluster, "t").replica_nodes
    asked = next(node for node in (1, 2, 3) if node != second)
    assert cluster.stop(second) in ENDED
    until(lambda: partition(cluster, "t", asked=asked).isr_nodes == [first], "the other one is not in sync")
    errors = produce(cluster, "t", 1, **{"message.timeout.ms": 3000, "retries": 0})
    assert errors[0] in ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"), errors
    assert produce(cluster, "t", 1, acks=1) == [None], "its leader alone may take what is to have no copy yet"
    cluster.start(second)
    wait_until_healthy(cluster, at_least=["t"])
    assert produce(cluster, "t", 10) == [None] * 10


def test_records_are_deleted_everywhere(cluster: LocalCluster) -> None:
    create_topic(cluster, "t", 1, 3, {})
    assert produce(cluster, "t", 100) == [None] * 100
    leader = partition(cluster, "t").leader_id
    row = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=40)
    topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[row])
    answer = call(cluster, m.DeleteRecordsRequest(topics=[topic], timeout_ms=60_000), asked=leader)
    (deleted,) = answer.topics[0].partitions
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, 40)
    assert cluster.stop(leader) in ENDED
    other = next(node for node in (1, 2, 3) if node != leader)
    until(lambda: partition(cluster, "t", asked=other).leader_id not in (leader, -1), "another one leads")
    consumer = Consumer({"bootstrap.servers": cluster.layout.bootstrap, "group.id": "g", "log_level": 2})
    try:
        until(lambda: watermarks(consumer) == (40, 100), "the new leader has the same ends")
    finally:
        consumer.close()


def watermarks(consumer: Consumer) -> tuple[int, int] | None:
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=10)
    except KafkaException:
        return None
    return low, high


def test_groups_move_with_their_coordinators(cluster: LocalCluster) -> None:
    create_topic(cluster, "t", 2, 3, {"min.insync.replicas": "2"})
    history, places = History(), [("t", 0), ("t", 1)]
    load = Load(cluster.layout.bootstrap, places, history, producers=1, members=2)
    load.start()
    load.wait_for_progress()
    for _ in range(2):
        with Cluster([(node.host, node.port) for node in cluster.layout.brokers]) as client:
            coordinator = client.coordinator(GROUP)
        committed = len(history.commits)
        assert cluster.stop(coordinator) in ENDED
        load.wait_for_progress()
        until(lambda before=committed: len(history.commits) > before + 5, "the group commits at its new coordinator")
        cluster.start(coordinator)
        wait_until_healthy(cluster, at_least=["t", "__consumer_offsets"])
    load.stop()
    read_everything(cluster.layout.bootstrap, places, history)
    assert check(history) == []
    assert history.client_errors == []


def test_an_unclean_election_loses_what_only_the_lost_leader_had(cluster: LocalCluster) -> None:
    create_topic(cluster, "t", 1, 2, {"min.insync.replicas": "1"})
    first, second = partition(cluster, "t").replica_nodes
    asked = next(node for node in (1, 2, 3) if node not in (first, second))
    assert produce(cluster, "t", 10) == [None] * 10
    assert cluster.stop(second) in ENDED
    until(lambda: partition(cluster, "t", asked=asked).isr_nodes == [first], "the other one is not in sync")
    assert produce(cluster, "t", 10) == [None] * 10, "with one replica in sync, as asked for"
    cluster.kill(first)
    cluster.start(second)
    # The session of the killed broker ends six seconds later. Until then it is told as the leader.
    until(lambda: partition(cluster, "t", asked=asked).leader_id == -1, "nobody leads")
    until(lambda: is_unfenced(cluster, second, asked), "the other one is back")
    assert partition(cluster, "t", asked=asked).leader_id == -1
    wanted = m.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
    request = m.ElectLeadersRequest(election_type=1, topic_partitions=[wanted], timeout_ms=30_000)
    until(lambda: call(cluster, request, asked=asked).error_code == 0, "whoever asks may have any leader elected")
    until(lambda: partition(cluster, "t", asked=asked).leader_id == second, "it leads")
    assert produce(cluster, "t", 5) == [None] * 5
    cluster.start(first)
    wait_until_healthy(cluster, at_least=["t"])
    assert sorted(partition(cluster, "t", asked=asked).isr_nodes) == sorted((first, second))
    assert produce(cluster, "t", 5) == [None] * 5
    consumer = Consumer({"bootstrap.servers": cluster.layout.bootstrap, "group.id": "g", "log_level": 2})
    try:
        until(lambda: watermarks(consumer) == (0, 20), "ten records are gone, and the rest is there")
    finally:
        consumer.close()
    assert cluster.down() == []
    log_dirs = {node: cluster.log_dir(node) for node in (first, second)}
    assert check_replicas(log_dirs, frozenset({"t"})) == []


@pytest.mark.parametrize("controller_version", CONTROLLER_VERSIONS)
def test_a_follower_that_lags_leaves_the_isr_and_comes_back(tmp_path: Path, controller_version: str) -> None:
    overrides = {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "2000"}
    with running_cluster(
        tmp_path / "cluster", brokers=3, overrides=overrides, controller_version=controller_version
    ) as cluster:
        create_topic(cluster, "t", 1, 3, {"min.insync.replicas": "2"})
        assert produce(cluster, "t", 10) == [None] * 10
        leader, lagging, other = partition(cluster, "t").replica_nodes
        cluster.pause(lagging)
        assert produce(cluster, "t", 10) == [None] * 10, "they wait until it is out"
        # The leader goes by what the controller has answered; what it tells clients comes by the metadata log.
        until(lambda: set(partition(cluster, "t", asked=leader).isr_nodes) == {leader, other}, "the ISR is told")
        cluster.resume(lagging)
        wait_until_healthy(cluster, at_least=["t"])
        assert produce(cluster, "t", 10) == [None] * 10
        assert cluster.down() == []
        log_dirs = {node: cluster.log_dir(node) for node in (1, 2, 3)}
        assert check_replicas(log_dirs, frozenset({"t"})) == []


def test_consumers_read_from_a_replica_in_their_rack(tmp_path: Path) -> None:
    racks = {1: "east", 2: "west", 3: "north"}
    read_from: set[tuple[int, int]] = set()

    def note(text: str) -> None:
        for row in json.loads(text)["topics"].get("t", {}).get("partitions", {}).values():
            read_from.add((row["leader"], row["broker"]))

    with running_cluster(tmp_path / "cluster", brokers=3, overrides=OVERRIDES, racks=list(racks.values())) as cluster:
        create_topic(cluster, "t", 1, 3, {})
        leader, _, near = partition(cluster, "t").replica_nodes
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.layout.bootstrap,
                "group.id": "g",
                "client.rack": racks[near],
                "statistics.interval.ms": 100,
                "stats_cb": note,
            }
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        found: list[bytes | None] = []

        def read(count: int) -> bool:
            found.extend(each.value() for each in consumer.consume(1000, 0.1) if each.error() is None)
            return len(found) >= count

        assert produce(cluster, "t", 100) == [None] * 100
        until(lambda: read(100) and (leader, near) in read_from, "all is read, from the replica that is near")
        assert cluster.stop(near) in ENDED
        assert produce(cluster, "t", 100) == [None] * 100
        until(lambda: read(200), "the rest is read from elsewhere")
        assert found == [b"%d" % number for number in range(100)] * 2
        consumer.close()


@pytest.mark.parametrize("controller_version", CONTROLLER_VERSIONS)
def test_replicas_move_between_log_dirs_while_they_lead_and_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controller_version: str
) -> None:
    def with_two_dirs(layout: Layout, node: Node, log_dir: Path) -> dict[str, str]:
        dirs = {"log.dirs": f"{log_dir},{log_dir.parent / 'other'}"} if node.is_broker else {}
        return node_properties(layout, node, log_dir) | dirs

    monkeypatch.setattr(local_cluster, "node_properties", with_two_dirs)
    places = [("t", 0), ("t", 1), ("t", 2)]
    history = History()
    with running_cluster(tmp_path / "cluster", brokers=3, controller_version=controller_version) as cluster:
        create_topic(cluster, "t", 3, 3, {"min.insync.replicas": "2"})
        load = Load(cluster.layout.bootstrap, places, history, producers=2, members=1)
        load.start()
        load.wait_for_progress()
        for node in (1, 2, 3):
            first, second = cluster.log_dir(node).absolute(), cluster.log_dir(node).absolute().parent / "other"
            moved = {path: [index for _, index in places if (path / f"t-{index}").exists()] for path in (first, second)}
            request = m.AlterReplicaLogDirsRequest(
                dirs=[alter_dir(second, moved[first]), alter_dir(first, moved[second])]
            )
            answer = call(cluster, request, asked=node)
            assert all(row.error_code == 0 for topic in answer.results for row in topic.partitions), answer
            for source, target in ((first, second), (second, first)):
                for index in moved[source]:
                    until(
                        lambda source=source, target=target, index=index: (
                            (target / f"t-{index}").exists() and not (source / f"t-{index}").exists()
                        ),
                        f"t-{index} of broker {node} has moved",
                    )
            load.wait_for_progress()
        wait_until_healthy(cluster, at_least=["t"])
        load.stop()
        read_everything(cluster.layout.bootstrap, places, history)
        assert check(history) == []
        assert history.client_errors == []


def alter_dir(path: Path, partitions: list[int]) -> m.AlterReplicaLogDirsRequest.AlterReplicaLogDir:
    topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="t", partitions=partitions)
    return m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(path), topics=[topic])


def is_unfenced(cluster: LocalCluster, node_id: int, asked: int) -> bool:
    node = cluster.layout.node(asked)
    with Cluster([(node.host, node.port)]) as client:
        return node_id in client.nodes()
