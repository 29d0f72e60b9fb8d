"""Apache Kafka's tools in the first moment of a partition: its directory has the files that Apache Kafka's has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from admin_script import Session
from tool_process import Tools

from pybroker.cluster.local_cluster import LocalCluster
from pybroker.protocol import messages as m
from pybroker.protocol.record_batch import Record, build
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.cluster.fixtures import cluster_fixture
from tests.harness.kafka import KafkaBroker

TOOLS = "org.apache.kafka.tools."
SEGMENT_BYTES = 1 << 20
#: The dump tool has ended in order, and yet found something that it does not like.
COMPLAINTS = ("Exception", "Error", "ismatch", "not found", "out of order", "Non-consecutive", "not a valid")
OVERRIDES = {"offsets.topic.num.partitions": "1"}
#: A segment with two indexes, leader-epoch-checkpoint and partition.metadata.
NEW_FILE_COUNT = 5

cluster = cluster_fixture(brokers=1, jvm_brokers=1)


def create(client: ProtocolClient, name: str) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[m.CreateTopicsRequest.CreatableTopicConfig(name="segment.bytes", value=str(SEGMENT_BYTES))],
    )
    answer = client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert [each.error_code for each in answer.topics] == [0]


def produce(client: ProtocolClient, name: str, value_bytes: int) -> None:
    batch = build(0, -1, [Record(None, os.urandom(value_bytes))], timestamp_ms=int(time.time() * 1000))
    data = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    topics = [m.ProduceRequest.TopicProduceData(name=name, partition_data=[data])]
    answer = client.call(m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def names_in(directory: Path) -> list[str]:
    """What a partition's directory holds, if it is there, but for notes of our own. A snapshot of producers may follow
    a roll by some seconds."""
    names = [each.name for each in directory.iterdir()] if directory.exists() else []
    return sorted(each for each in names if not each.startswith(".pybroker_") and not each.endswith(".snapshot"))


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_settled(directory: Path) -> bool:
    """Apache Kafka answers when its controller has the topic, and puts some files in place by renaming others."""
    names = names_in(directory)
    return "partition.metadata" in names and not any(each.endswith(".tmp") for each in names)


def moments(client: ProtocolClient, log_dir: Path) -> Iterator[tuple[str, Path]]:
    """What happens, and the directory it happens in; the files are looked at right after each."""
    directory = log_dir / "new-0"
    create(client, "new")
    yield "created", directory
    Session(client).produce("new", 0, 1)
    yield "a record", directory
    for _ in range(12):
        produce(client, "new", SEGMENT_BYTES // 10)
    yield "a roll", directory
    until(lambda: client.call(m.FindCoordinatorRequest(key="g"), 3).error_code == 0)
    yield "an internal topic", log_dir / "__consumer_offsets-0"
    yield "the metadata", log_dir / "__cluster_metadata-0"


def dump(tools: Tools, directory: Path) -> None:
    """Each file by itself."""
    for path in sorted(directory.iterdir()):
        if path.suffix in (".log", ".index", ".timeindex"):
            decoder = ["--cluster-metadata-decoder"] if directory.name == "__cluster_metadata-0" else []
            status, output = tools.ended(f"{TOOLS}DumpLogSegments", *decoder, "--files", str(path))
            assert status == 0 and output.startswith(f"Dumping {path}"), output
            assert not any(each in output for each in COMPLAINTS), output


@pytest.fixture(scope="module")
def kafkas_names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    log_dir = tmp_path_factory.mktemp("kafka") / "data"
    found: dict[str, list[str]] = {}
    with KafkaBroker(log_dir, node_id=1, overrides=OVERRIDES) as broker, ProtocolClient(broker.port) as client:
        for what, directory in moments(client, log_dir):
            until(lambda directory=directory: is_settled(directory))
            found[what] = names_in(directory)
    return found


@pytest.mark.parametrize("engine", ["paced", "direct"])
def test_files_are_there_and_can_be_read_at_once(
    engine: str, tmp_path: Path, kafkas_names: dict[str, list[str]]
) -> None:
    log_dir = tmp_path / "data"
    overrides = {**OVERRIDES, "node.id": "1", "pybroker.append.engine": engine}
    with (
        BrokerProcess(log_dir, overrides=overrides) as broker,
        ProtocolClient(broker.port) as client,
        closing(Tools(broker.bootstrap)) as tools,
    ):
        tools.run(f"{TOOLS}TopicCommand", "--list")  # the first one takes as long as Java
        for what, directory in moments(client, log_dir):
            assert names_in(directory) == kafkas_names[what], what
            dump(tools, directory)
        create(client, "newer")
        assert "newer:0:0" in tools.run(f"{TOOLS}GetOffsetShell", "--topic", "newer").split()
        described = tools.run(f"{TOOLS}LogDirsCommand", "--describe", "--topic-list", "newer,__consumer_offsets")
        assert '"partition":"newer-0","size":0' in described
        assert '"partition":"__consumer_offsets-0","size":0' in described


def test_replicas_of_a_cluster_have_the_same_files(cluster: LocalCluster) -> None:
    """A leader and a follower of each kind, right after creation and with a record."""
    ours, kafkas = cluster.layout.brokers
    for leader, follower in ((ours, kafkas), (kafkas, ours)):
        name = f"led-by-{leader.node_id}"
        own, other = (cluster.log_dir(node.node_id) / f"{name}-0" for node in (ours, kafkas))
        assignment = m.CreateTopicsRequest.CreatableReplicaAssignment(
            partition_index=0, broker_ids=[leader.node_id, follower.node_id]
        )
        topic = m.CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        with ProtocolClient(leader.port) as client:
            answer = client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
            assert [each.error_code for each in answer.topics] == [0]
            # The other broker hears of it from the controllers, and makes one file after the other.
            until(lambda: len(names_in(own)) >= NEW_FILE_COUNT)  # noqa: B023 - called at once
            until(lambda: is_settled(other))  # noqa: B023
            expected = names_in(other)
            assert len(expected) == NEW_FILE_COUNT
            assert names_in(own) == expected
            Session(client).produce(name, 0, 1)
            assert names_in(own) == expected
