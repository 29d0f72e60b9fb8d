"""Apache Kafka's own command line tools against this broker: all in one JVM, in the order of a small story.

`PYBROKER_TEST_BROKER=kafka` runs the same story against Apache Kafka, which proves the expectations.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from admin_script import Session
from tool_process import Tools

from pybroker.metadata.features import MAX_METADATA_RELEASE
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker

IS_KAFKA = os.environ.get("PYBROKER_TEST_BROKER") == "kafka"
OVERRIDES = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
TOOLS = "org.apache.kafka.tools."
GROUPS = f"{TOOLS}consumer.group.ConsumerGroupCommand"


def start_broker(log_dirs: list[Path]) -> BrokerProcess | KafkaBroker:
    """The broker the story is played against; its node id is 1."""
    overrides = {**OVERRIDES, "log.dirs": ",".join(map(str, log_dirs))}
    if not IS_KAFKA:
        return BrokerProcess(log_dirs[0], overrides={**overrides, "node.id": "1"})
    return KafkaBroker(log_dirs[0], node_id=1, overrides=overrides)


def topics(tools: Tools) -> None:
    command = f"{TOOLS}TopicCommand"
    assert "Created topic story." in tools.run(
        command, "--create", "--topic", "story", "--partitions", "2", "--config", "retention.ms=100000"
    )
    assert "exists" in tools.run(command, "--create", "--topic", "story", status=1)
    tools.run(command, "--create", "--topic", "story", "--if-not-exists")
    assert "story" in tools.run(command, "--list").split()
    tools.run(command, "--alter", "--topic", "story", "--partitions", "3")
    described = tools.run(command, "--describe", "--topic", "story")
    assert "PartitionCount: 3\tReplicationFactor: 1" in described
    assert "retention.ms=100000" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3
    assert tools.run(command, "--describe", "--under-replicated-partitions").strip() == ""
    tools.run(command, "--create", "--topic", "short-lived")
    tools.run(command, "--delete", "--topic", "short-lived")
    assert "short-lived" not in tools.run(command, "--list").split()
    assert "does not exist" in tools.run(command, "--delete", "--topic", "absent", status=1)


def topic_configs(tools: Tools) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "story")
    tools.run(CONFIGS, *topic, "--alter", "--add-config", "retention.ms=7777,max.message.bytes=5000")
    described = tools.run(CONFIGS, *topic, "--describe")
    assert "retention.ms=7777 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7777" in described
    assert "max.message.bytes=5000" in described
    tools.run(CONFIGS, *topic, "--alter", "--delete-config", "max.message.bytes")
    assert "max.message.bytes" not in tools.run(CONFIGS, *topic, "--describe")
    assert "retention.ms" in tools.run(CONFIGS, *topic, "--alter", "--add-config", "retention.ms=soon", status=1)
    tools.run(CONFIGS, *topic, "--alter", "--delete-config", "retention.ms")
    every = tools.run(CONFIGS, *topic, "--describe", "--all")
    assert "retention.ms=604800000" in every


def broker_configs(tools: Tools) -> None:
    brokers = ("--entity-type", "brokers")
    tools.run(CONFIGS, *brokers, "--entity-name", "1", "--alter", "--add-config", "log.cleaner.threads=2")
    described = tools.run(CONFIGS, *brokers, "--entity-name", "1", "--describe")
    assert (
        "log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, "
        "DEFAULT_CONFIG:log.cleaner.threads=1}" in described
    )
    tools.run(CONFIGS, *brokers, "--entity-default", "--alter", "--add-config", "message.max.bytes=900000")
    assert "message.max.bytes=900000" in tools.run(CONFIGS, *brokers, "--entity-default", "--describe")
    tools.run(CONFIGS, *brokers, "--entity-default", "--alter", "--delete-config", "message.max.bytes")
    assert "message.max.bytes=1048588" in tools.run(CONFIGS, *brokers, "--entity-name", "1", "--describe", "--all")
    refused = tools.run(CONFIGS, *brokers, "--entity-name", "1", "--alter", "--add-config", "node.id=3", status=1)
    assert "node.id" in refused


def records(tools: Tools, session: Session, tmp_path: Path) -> None:
    # The records are of 2023: without this, retention may delete them in the course of the test.
    tools.run(
        CONFIGS, "--entity-type", "topics", "--entity-name", "story", "--alter", "--add-config", "retention.ms=-1"
    )
    session.produce("story", 0, 10)
    session.produce("story", 1, 4)
    offsets, of_story = f"{TOOLS}GetOffsetShell", ("--topic", "story")
    assert tools.run(offsets, *of_story).split() == ["story:0:10", "story:1:4", "story:2:0"]
    wanted = [{"topic": "story", "partition": index, "offset": offset} for index, offset in ((0, 6), (1, -1))]
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps({"partitions": wanted, "version": 1}))
    deleted = tools.run(f"{TOOLS}DeleteRecordsCommand", "--offset-json-file", str(path))
    assert "partition: story-0\tlow_watermark: 6" in deleted
    assert "partition: story-1\tlow_watermark: 4" in deleted
    assert tools.run(offsets, *of_story, "--time", "earliest").split() == ["story:0:6", "story:1:4", "story:2:0"]
    assert tools.run(offsets, *of_story, "--time", "1700000000000").split()[0] == "story:0:6"
    wanted[0]["offset"] = 99
    path.write_text(json.dumps({"partitions": wanted, "version": 1}))
    assert "OffsetOutOfRange" in tools.run(f"{TOOLS}DeleteRecordsCommand", "--offset-json-file", str(path))


def described_dirs(tools: Tools) -> dict[str, dict[str, dict[str, Any]]]:
    """What is said of the partitions in each log dir."""
    output = tools.run(f"{TOOLS}LogDirsCommand", "--describe", "--topic-list", "story")
    (node,) = json.loads(output.splitlines()[-1])["brokers"]
    assert node["broker"] == 1 and all(each["error"] is None for each in node["logDirs"])
    return {each["logDir"]: {row["partition"]: row for row in each["partitions"]} for each in node["logDirs"]}


def log_dirs(tools: Tools, paths: list[Path]) -> None:
    found = described_dirs(tools)
    assert set(found) == set(map(str, paths))
    sizes = {name: row["size"] for rows in found.values() for name, row in rows.items()}
    (place,) = [path for path in paths if "story-0" in found[str(path)]]
    on_disk = (place / "story-0" / f"{0:020}.log").stat().st_size
    assert sizes == {"story-0": on_disk, "story-1": sizes["story-1"], "story-2": 0}
    assert on_disk > 0


def moves(tools: Tools, paths: list[Path], tmp_path: Path) -> None:
    (source,) = [path for path, rows in described_dirs(tools).items() if "story-0" in rows]
    (target,) = {str(path) for path in paths} - {source}
    path = tmp_path / "moves.json"
    partition = {"topic": "story", "partition": 0, "replicas": [1], "log_dirs": [target]}
    path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    command = (f"{TOOLS}reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(path))
    executed = tools.run(*command, "--execute", "--replica-alter-log-dirs-throttle", "100000000")
    assert "Successfully started partition reassignment for story-0" in executed
    assert f"started moving log directory to {target} for replica story-0 with broker 1" in executed
    deadline = time.monotonic() + 120
    while "Reassignment of replica story-0-1 completed successfully" not in tools.run(*command, "--verify"):
        assert time.monotonic() < deadline
    assert set(described_dirs(tools)[target]) >= {"story-0"}
    assert "story-0" not in described_dirs(tools)[source]
    assert not list(Path(target).glob("*-future")) and (Path(target) / "story-0").is_dir()
    listed = tools.run(f"{TOOLS}reassign.ReassignPartitionsCommand", "--list")
    assert "No partition reassignments found." in listed
    throttle = ("--entity-type", "brokers", "--entity-name", "1", "--describe")
    assert "replica.alter.log.dirs" not in tools.run(CONFIGS, *throttle), "the verification takes the throttle off"


def groups(tools: Tools) -> None:
    group = ("--group", "readers")
    reset = tools.run(GROUPS, *group, "--topic", "story", "--reset-offsets", "--to-earliest", "--execute")
    assert sorted(line.split()[1:] for line in reset.splitlines()[2:] if line.strip()) == [
        ["story", "0", "6"],
        ["story", "1", "4"],
        ["story", "2", "0"],
    ]
    assert tools.run(GROUPS, "--list").split() == ["readers"]
    assert tools.run(GROUPS, "--list", "--state").split()[2:] == ["readers", "Empty"]
    rows = [line.split() for line in tools.run(GROUPS, *group, "--describe").splitlines() if "story" in line]
    assert [row[:6] for row in rows] == [
        ["readers", "story", "0", "6", "10", "4"],
        ["readers", "story", "1", "4", "4", "0"],
        ["readers", "story", "2", "0", "0", "0"],
    ]
    assert "Empty" in tools.run(GROUPS, *group, "--describe", "--state")
    assert "no active members" in tools.run(GROUPS, *group, "--describe", "--members")
    assert tools.run(GROUPS, *group, "--delete-offsets", "--topic", "story").count("Successful") == 3
    assert "successful" in tools.run(GROUPS, *group, "--delete")
    assert tools.run(GROUPS, "--list").split() == []
    assert "does not exist" in tools.run(GROUPS, "--group", "absent", "--delete")


def cluster(tools: Tools) -> None:
    versions = tools.run(f"{TOOLS}BrokerApiVersionsCommand")
    assert "(id: 1 rack: null isFenced: false)" in versions
    for api in ("CreateTopics(19): 2 to 7", "InitProducerId(22): 0 to 5", "DescribeTopicPartitions(75): 0"):
        assert api in versions
    features = tools.run(f"{TOOLS}FeatureCommand", "describe")
    assert "metadata.version" in features
    assert MAX_METADATA_RELEASE in features
    quorum = tools.run(f"{TOOLS}MetadataQuorumCommand", "describe", "--status")
    assert "LeaderId:               1" in quorum
    assert "MaxFollowerLag:         0" in quorum
    assert "Leader" in tools.run(f"{TOOLS}MetadataQuorumCommand", "describe", "--replication")
    producers = ("describe-producers", "--topic", "story", "--partition", "0")
    assert "ProducerId" in tools.run(f"{TOOLS}TransactionsCommand", *producers)


def leader_election(tools: Tools) -> None:
    election = (f"{TOOLS}LeaderElectionCommand", "--election-type", "preferred")
    tools.run(*election, "--all-topic-partitions")
    needless = tools.run(*election, "--topic", "story", "--partition", "0")
    assert "Valid replica already elected for partitions story-0" in needless
    absent = tools.run(*election, "--topic", "absent", "--partition", "0", status=1)
    assert "UnknownTopicOrPartition" in absent


def entities(tools: Tools) -> None:
    for kind in ("users", "clients", "ips"):
        assert tools.run(CONFIGS, "--describe", "--entity-type", kind).strip() == ""
    client = ("--entity-type", "clients", "--entity-name", "app")
    tools.run(CONFIGS, *client, "--alter", "--add-config", "producer_byte_rate=1000000")
    said = "Quota configs for client-id 'app' are producer_byte_rate=1000000.0"
    assert tools.run(CONFIGS, *client, "--describe").strip() == said
    tools.run(CONFIGS, *client, "--alter", "--delete-config", "producer_byte_rate")
    user = ("--entity-type", "users", "--entity-name", "ann")
    tools.run(CONFIGS, *user, "--alter", "--add-config", "SCRAM-SHA-256=[password=secret]")
    said = "SCRAM credential configs for user-principal 'ann' are SCRAM-SHA-256=iterations=4096"
    assert tools.run(CONFIGS, *user, "--describe").strip() == said
    address = ("--entity-type", "ips", "--entity-name", "127.0.0.1")
    refused = tools.run(CONFIGS, *address, "--alter", "--add-config", "connection_creation_rate=0", status=1)
    assert "InvalidRequestException" in refused


@pytest.mark.skipif(
    shutil.which("javac") is None or shutil.which("mvn") is None, reason="needs a JDK, and mvn to fetch Apache Kafka"
)
def test_tools(tmp_path: Path) -> None:
    # One test, because each part goes on from what the one before it has left.
    paths = [tmp_path / "first", tmp_path / "second"]
    with (
        start_broker(paths) as broker,
        closing(Tools(broker.bootstrap)) as tools,
        ProtocolClient(broker.port) as client,
    ):
        topics(tools)
        topic_configs(tools)
        broker_configs(tools)
        records(tools, Session(client), tmp_path)
        log_dirs(tools, paths)
        moves(tools, paths, tmp_path)
        groups(tools)
        cluster(tools)
        leader_election(tools)
        entities(tools)
