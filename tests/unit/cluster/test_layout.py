"""What is kept of a cluster, and the properties of its nodes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pybroker.cluster import formatting, local_cluster
from pybroker.cluster.errors import ClusterError
from pybroker.cluster.layout import ClusterFile, Layout, Node, NodeKind, ProcessName
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.cluster.network import Network
from pybroker.cluster.settings import RELEASES, node_properties
from pybroker.protocol.kafka_version import KAFKA_VERSION
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.server.replica_selector import RACK_AWARE


def make_layout(network: Network | None = None, **overrides: str) -> Layout:
    kinds = [NodeKind.BROKER, NodeKind.JVM_BROKER, NodeKind.JVM_BROKER, NodeKind.CONTROLLER, NodeKind.CONTROLLER]
    ids = [1, 2, 3, 100, 101]
    nodes = tuple(
        Node(node_id, kind, "127.0.0.1", 20_000 + node_id, uuid_to_text(random_uuid()))
        for node_id, kind in zip(ids, kinds, strict=True)
    )
    return Layout(uuid_to_text(random_uuid()), nodes, overrides, network)


@pytest.mark.parametrize("network", [None, Network(7)])
def test_what_is_written_is_read(tmp_path: Path, network: Network | None) -> None:
    layout = make_layout(network, **{"log.retention.ms": "1"})
    processes = {1: ProcessName(1234, 99), 100: ProcessName(1235, 100)}
    file = ClusterFile(tmp_path)
    assert not file.exists()
    file.write(layout, processes)
    assert file.exists()
    assert file.read() == (layout, processes)


def test_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="holds no cluster: `pybroker cluster up` makes one"):
        ClusterFile(tmp_path).read()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"version": 2}, "version 2"), ({"nodes": [{"node_id": 1}]}, "not what this version"), ({"nodes": 7}, "not what")],
)
def test_a_file_of_others(tmp_path: Path, change: dict[str, object], message: str) -> None:
    file = ClusterFile(tmp_path)
    file.write(make_layout(), {})
    file.path.write_text(json.dumps({**json.loads(file.path.read_text()), **change}))
    with pytest.raises(ClusterError, match=message):
        file.read()


def test_a_damaged_file(tmp_path: Path) -> None:
    file = ClusterFile(tmp_path)
    file.path.write_text('{"version": 1,')
    with pytest.raises(ClusterError, match="damaged"):
        file.read()


def test_brokers_and_controllers() -> None:
    layout = make_layout()
    assert layout.bootstrap == "127.0.0.1:20001,127.0.0.1:20002,127.0.0.1:20003"
    assert layout.controller_bootstrap == "127.0.0.1:20100,127.0.0.1:20101"
    moved = layout.with_kind(2, NodeKind.BROKER)
    assert [node.kind for node in moved.brokers] == [NodeKind.BROKER, NodeKind.BROKER, NodeKind.JVM_BROKER]
    assert moved.node(2).directory_id == layout.node(2).directory_id
    with pytest.raises(ClusterError, match="no node 9"):
        layout.node(9)


def test_properties_are_of_the_role(tmp_path: Path) -> None:
    layout = make_layout(**{"min.insync.replicas": "3"})
    broker = node_properties(layout, layout.node(1), tmp_path)
    controller = node_properties(layout, layout.node(100), tmp_path)
    assert broker["process.roles"] == "broker"
    assert broker["listeners"] == "PLAINTEXT://127.0.0.1:20001"
    assert controller["process.roles"] == "controller"
    assert controller["listeners"] == "CONTROLLER://127.0.0.1:20100"
    for each in (broker, controller):
        assert each["controller.quorum.bootstrap.servers"] == layout.controller_bootstrap
        assert each["min.insync.replicas"] == "3"  # what the user says wins
        assert each["offsets.topic.replication.factor"] == "3"


def test_brokers_are_put_into_racks_in_turn(tmp_path: Path) -> None:
    nodes = local_cluster._nodes([*[NodeKind.BROKER] * 3, NodeKind.CONTROLLER], None, ["east", "west"])
    assert [node.rack for node in nodes] == ["east", "west", "east", None]
    layout = Layout("cluster", nodes)
    ClusterFile(tmp_path).write(layout, {})
    assert ClusterFile(tmp_path).read() == (layout, {})
    in_rack, without = node_properties(layout, nodes[1], tmp_path), node_properties(layout, nodes[3], tmp_path)
    assert in_rack["broker.rack"] == "west"
    assert in_rack["replica.selector.class"] == RACK_AWARE
    assert not {"broker.rack", "replica.selector.class"} & set(without)
    (alone,) = local_cluster._nodes([NodeKind.BROKER], None, [])
    assert "broker.rack" not in node_properties(Layout("cluster", (alone,)), alone, tmp_path)


@pytest.mark.parametrize("version", RELEASES)
def test_the_controllers_version_is_kept(tmp_path: Path, version: str) -> None:
    layout = dataclasses.replace(make_layout(), controller_version=version)
    ClusterFile(tmp_path).write(layout, {})
    assert ClusterFile(tmp_path).read()[0].controller_version == version


def test_a_file_without_the_controllers_version_is_of_the_reference(tmp_path: Path) -> None:
    file = ClusterFile(tmp_path)
    file.write(make_layout(), {})
    content = json.loads(file.path.read_text())
    del content["controller_version"]
    file.path.write_text(json.dumps(content))
    assert file.read()[0].controller_version == KAFKA_VERSION


def test_controllers_of_a_version_that_nothing_is_known_of_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"Apache Kafka 3\.8\.0 cannot be started here: choose one of 4"):
        LocalCluster.make(tmp_path / "cluster", brokers=1, controller_version="3.8.0")
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize("version", RELEASES)
def test_controllers_alone_run_that_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """They are formatted and started with it; a broker of Apache Kafka runs the reference beside them."""
    formatted: list[tuple[str, tuple[str, ...]]] = []
    started: dict[int, str] = {}
    monkeypatch.setattr(formatting, "run_tool", lambda _class, *words, version: formatted.append((version, words)))
    monkeypatch.setattr(local_cluster, "java_command", lambda *words: ["java", words[-1]])

    class Started:
        name = ProcessName(1, 1)

        @classmethod
        def start(cls, command: list[str], output: Path, _environment: dict[str, str]) -> Started:
            started[int(output.parent.name.removeprefix("node-"))] = command[1]
            return cls()

    monkeypatch.setattr(local_cluster, "NodeProcess", Started)
    made = LocalCluster.make(tmp_path, jvm_brokers=1, controllers=1, controller_version=version)
    for node in made.layout.nodes:
        made.start(node.node_id)
    ((used, words),) = formatted
    assert used == version
    assert words[words.index("--release-version") + 1] == RELEASES[version].metadata_version
    assert [each for each in words if "=" in each] == [
        f"{name}={level}" for name, level in RELEASES[version].feature_levels.items()
    ]
    assert started == {1: KAFKA_VERSION, 100: version}
