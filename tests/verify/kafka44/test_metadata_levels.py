"""A broker of ours beside Apache Kafkas of 3.9 and later, at old and new levels of metadata.version: it joins, and
serves what their controllers assign to it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pybroker.metadata.features import MAX_METADATA_RELEASE, MAX_METADATA_VERSION
from pybroker.protocol import messages as m
from pybroker.protocol.kafka_version import KAFKA_VERSION
from pybroker.protocol.record_batch import Record, build
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker, run_tool
from tests.harness.process import free_port

#: Level to Kafka's name of it.
LEVELS = {
    7: "3.3-IV3",
    14: "3.6-IV2",
    17: "3.7-IV2",
    21: "3.9-IV0",
    25: "4.0-IV3",
    30: "4.3-IV0",
    MAX_METADATA_VERSION: MAX_METADATA_RELEASE,
}
#: Version to its highest level, and to the features that it may finalise and this broker does not serve.
KAFKAS = {
    "3.9.1": (21, ()),
    "4.0.0": (25, ("group.version", "transaction.version")),
    "4.3.0": (30, ("group.version", "share.version", "streams.version", "transaction.version")),
    KAFKA_VERSION: (MAX_METADATA_VERSION, ("group.version", "share.version", "streams.version", "transaction.version")),
}
#: The first level at which controllers answer DescribeCluster.
TOLD_FROM = 15
TOPIC = "ours"
OURS = 2


def _format(log_dir: Path, version: str, level: int) -> tuple[int, dict[str, str]]:
    """A combined node 1 with static voters, which every level has. Its controller's port, and its settings."""
    port = free_port()
    voters = {"controller.quorum.voters": f"1@127.0.0.1:{port}"}
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(log_dir),
        **voters,
    }
    path = log_dir.parent / "format.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    log_dir.mkdir()
    options = ["--cluster-id", uuid_to_text(random_uuid()), "--config", str(path), "--release-version", LEVELS[level]]
    for feature in KAFKAS[version][1]:
        options += ["--feature", f"{feature}=0"]
    run_tool("kafka.tools.StorageTool", "format", *options, version=version)
    return port, voters


def _create(client: ProtocolClient) -> int:
    topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1)
    topic.assignments = [m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[OURS])]
    answer: Any = client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    return int(answer.topics[0].error_code)


def _produce(client: ProtocolClient) -> int:
    records = build(0, -1, [Record(b"key", b"value")] * 3, timestamp_ms=int(time.time() * 1000))
    data = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    topics = [m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])]
    answer: Any = client.call(m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize(
    ("version", "level"),
    [(version, level) for version, (highest, _) in KAFKAS.items() for level in LEVELS if level <= highest],
)
def test_it_joins_and_serves(tmp_path: Path, version: str, level: int) -> None:
    log_dir = tmp_path / "kafka"
    port, voters = _format(log_dir, version, level)
    if level < TOLD_FROM:
        # The controllers do not tell the cluster's id, so our directory is formatted with it.
        kafkas = MetaProperties.read(log_dir)
        assert kafkas is not None
        (tmp_path / "ours").mkdir()
        MetaProperties(OURS, kafkas.cluster_id, random_uuid()).write(tmp_path / "ours")
    joining = {
        "process.roles": "broker",
        "node.id": str(OURS),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
    }
    with (
        KafkaBroker(log_dir, controller_port=port, overrides=voters, version=version),
        BrokerProcess(tmp_path / "ours", overrides=joining) as broker,
        ProtocolClient(broker.port) as client,
    ):
        software = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        found = {each.name: each.max_version_level for each in client.call(software, 4).finalized_features}
        assert found["metadata.version"] == level
        assert _create(client) == 0
        deadline = time.monotonic() + 60
        while (error := _produce(client)) != 0:
            assert time.monotonic() < deadline, error
            time.sleep(0.05)
