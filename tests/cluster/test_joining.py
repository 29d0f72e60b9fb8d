"""A broker of ours alone among Apache Kafka's controllers: it joins, serves, is looked after by their tools, leaves."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from pybroker.cluster.jars import run_tool
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.cluster.readiness import quorum_state
from pybroker.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid
from pybroker.quorum.fetcher import FetcherSettings, MetadataFetcher
from pybroker.quorum.leader import LeaderFinder
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.cluster.fixtures import CONTROLLER_VERSIONS, cluster_fixture, needs_kafka
from tests.harness.waiting import until

TIMEOUT_S = 60.0
BROKER, CONTROLLER = 1, 100
#: A start soon after a stop has to wait for the end of it.
_SESSION = {"broker.session.timeout.ms": "5000", "broker.heartbeat.interval.ms": "1000"}

pytestmark = needs_kafka


cluster = cluster_fixture(scope="module", brokers=1, overrides=_SESSION, controller_versions=CONTROLLER_VERSIONS)


@pytest.fixture
def bootstrap(cluster: LocalCluster) -> str:
    cluster.wait_until_ready()
    return cluster.layout.node(BROKER).address


def call(bootstrap: str, request: m.Message, version: int) -> Any:
    with ProtocolClient(int(bootstrap.rpartition(":")[2])) as client:
        return client.call(request, version)


def create(admin: AdminClient, name: str, partitions: int = 1) -> None:
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(TIMEOUT_S)


def produce(bootstrap: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def consume(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[str] = []
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
        return found
    finally:
        consumer.close()


def test_topics_are_made_by_the_controller_and_led_here_at_once(bootstrap: str) -> None:
    create(AdminClient({"bootstrap.servers": bootstrap}), "at-once", 3)
    (topic,) = call(
        bootstrap,
        m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="at-once")]),
        12,
    ).topics
    assert topic.error_code == 0
    assert sorted((each.partition_index, each.leader_id) for each in topic.partitions) == [(0, 1), (1, 1), (2, 1)]
    produce(bootstrap, "at-once", "one", "two")
    assert consume(bootstrap, "at-once", "readers", 2) == ["one", "two"]


def test_topics_come_into_being_by_being_used(bootstrap: str) -> None:
    produce(bootstrap, "used", "one")
    assert consume(bootstrap, "used", "readers", 1) == ["one"]


def test_what_changes_the_metadata_is_forwarded(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create(admin, "changed")
    for future in admin.create_partitions([NewPartitions("changed", 4)]).values():
        future.result(TIMEOUT_S)
    assert len(admin.list_topics("changed", timeout=TIMEOUT_S).topics["changed"].partitions) == 4
    entry = ConfigEntry("retention.ms", "4321", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "changed", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "changed")]).values()
    assert described.result(TIMEOUT_S)["retention.ms"].value == "4321"
    for future in admin.delete_topics(["changed"]).values():
        future.result(TIMEOUT_S)
    assert "changed" not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_kafkas_tools_see_the_quorum_through_the_broker(cluster: LocalCluster, bootstrap: str) -> None:
    told = run_tool(
        "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--replication"
    ).stdout.decode()
    status = {line.split()[0]: line.split()[-1] for line in told.splitlines()[1:]}
    assert status == {str(CONTROLLER): "Leader", str(BROKER): "Observer"}
    features = run_tool(
        "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", bootstrap, "describe"
    ).stdout.decode()
    assert "eligible.leader.replicas.version" in features


def test_a_restart_in_order_keeps_what_there_was_and_says_so(cluster: LocalCluster, bootstrap: str) -> None:
    produce(bootstrap, "kept", "one")
    epoch = _broker_epoch(cluster)
    assert cluster.stop(BROKER) == 0
    clean = json.loads((cluster.log_dir(BROKER) / ".kafka_cleanshutdown").read_text())
    assert clean["brokerEpoch"] == epoch
    cluster.start(BROKER)
    cluster.wait_until_ready()
    produce(bootstrap, "kept", "two")
    assert consume(bootstrap, "kept", "after-stop", 2) == ["one", "two"]
    assert _broker_epoch(cluster) > epoch


def test_after_a_kill_it_joins_again_when_its_session_has_ended(cluster: LocalCluster, bootstrap: str) -> None:
    produce(bootstrap, "killed", "one")
    cluster.kill(BROKER)
    cluster.start(BROKER)
    cluster.wait_until_ready()
    until(lambda: "killed" in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).topics)
    produce(bootstrap, "killed", "two")
    assert consume(bootstrap, "killed", "after-kill", 2) == ["one", "two"]


def test_a_controller_that_comes_back_finds_a_broker_that_never_left(cluster: LocalCluster, bootstrap: str) -> None:
    epoch = _broker_epoch(cluster)
    before = quorum_state(cluster.layout)
    assert before is not None
    cluster.kill(CONTROLLER)
    produce(bootstrap, "killed", "three")
    cluster.start(CONTROLLER)

    def leads_again() -> bool:
        now = quorum_state(cluster.layout)
        return now is not None and now.leader_epoch > before.leader_epoch

    until(leads_again)
    create(AdminClient({"bootstrap.servers": bootstrap}), "after-election")
    produce(bootstrap, "after-election", "one")
    assert _broker_epoch(cluster) == epoch


def _broker_epoch(cluster: LocalCluster) -> int:
    """By the last line of the broker's output that says so."""
    lines = [line for line in cluster.output_path(BROKER).read_text().splitlines() if "under epoch" in line]
    return int(lines[-1].partition("under epoch ")[2].split()[0])


def test_the_controllers_learn_in_which_log_dirs_replicas_lie(
    cluster: LocalCluster, bootstrap: str, tmp_path: Path
) -> None:
    dirs = [tmp_path / "first", tmp_path / "second"]
    overrides = {
        **_SESSION,
        "process.roles": "broker",
        "node.id": "7",
        "controller.quorum.bootstrap.servers": cluster.layout.controller_bootstrap,
        "log.dirs": ",".join(map(str, dirs)),
    }
    with BrokerProcess(tmp_path / "unused", overrides=overrides) as other:
        topic = NewTopic("spread", num_partitions=4, replica_assignment=[[7]] * 4)
        admin = AdminClient({"bootstrap.servers": other.bootstrap})
        for future in admin.create_topics([topic]).values():
            future.result(TIMEOUT_S)
        told = asyncio.run(_told_directories(cluster, "spread"))
        ids = {properties.directory_id: path for path in dirs if (properties := MetaProperties.read(path)) is not None}
        assert len(ids) == 2
        assert {ids[directory] for directory in told.values()} == set(dirs), "on a broker with two, both are used"
        for index, directory in told.items():
            assert (ids[directory] / f"spread-{index}").is_dir()


async def _told_directories(cluster: LocalCluster, topic: str) -> dict[int, bytes]:
    """Where the metadata says that the partitions of a topic with one replica each lie, once it says so of all."""
    node = cluster.layout.node(CONTROLLER)
    settings = FetcherSettings(99, cluster.layout.cluster_id, random_uuid(), TIMEOUT_S, 0.1, 1 << 20, 1 << 20)
    fetcher = MetadataFetcher(settings, LeaderFinder([(node.host, node.port)]), lambda _delta, _image: None)
    running = asyncio.create_task(fetcher.run())

    def directories(image: MetadataImage) -> dict[int, bytes]:
        found = image.topics.by_name.get(topic)
        return {} if found is None else {index: each.directories[0] for index, each in found.partitions.items()}

    try:
        async with asyncio.timeout(TIMEOUT_S):
            await fetcher.until(
                lambda image: bool(directories(image)) and UNASSIGNED_DIRECTORY not in directories(image).values()
            )
        return directories(fetcher.image)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_broker_that_was_unregistered_registers_again(cluster: LocalCluster, bootstrap: str) -> None:
    produce(bootstrap, "unregistered", "one")
    epoch = _broker_epoch(cluster)
    run_tool("org.apache.kafka.tools.ClusterTool", "unregister", "--bootstrap-server", bootstrap, "--id", str(BROKER))
    until(lambda: _broker_epoch(cluster) > epoch)
    cluster.wait_until_ready()
    produce(bootstrap, "unregistered", "two")
    assert consume(bootstrap, "unregistered", "after-registration", 2) == ["one", "two"]
