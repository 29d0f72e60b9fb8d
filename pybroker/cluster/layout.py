"""The nodes of a local cluster, with their addresses. Kept in one JSON file, with the processes that run.

Pure but for `ClusterFile`, which reads and replaces that file. Fails with `ClusterError` for a file that is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pybroker.cluster.errors import ClusterError
from pybroker.cluster.network import Network
from pybroker.protocol.kafka_version import KAFKA_VERSION
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.modes import READABLE_MODE

STATE_FILE = "cluster.json"
_VERSION = 1
#: Brokers count from 1, controllers from here.
FIRST_CONTROLLER_ID = 100


class NodeKind(StrEnum):
    """The kind of a node; controllers are always Apache Kafka's."""

    BROKER = "broker"
    JVM_BROKER = "jvm-broker"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class Node:
    """One process of the cluster. `directory_id` is Kafka's text form of a uuid; `rack` that of a broker."""

    node_id: int
    kind: NodeKind
    host: str
    port: int
    directory_id: str
    rack: str | None = None

    @property
    def is_broker(self) -> bool:
        """True for a broker of either kind: pybroker or Apache Kafka."""
        return self.kind is not NodeKind.CONTROLLER

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Layout:
    """All nodes, brokers before controllers. `overrides` are properties that every node gets. `controller_version` is
    the version of Apache Kafka that the controllers run; its brokers run the reference."""

    cluster_id: str
    nodes: tuple[Node, ...]
    overrides: Mapping[str, str] = field(default_factory=dict)
    network: Network | None = None
    controller_version: str = KAFKA_VERSION

    @property
    def brokers(self) -> list[Node]:
        """The brokers of either kind: pybroker and Apache Kafka."""
        return [node for node in self.nodes if node.is_broker]

    @property
    def controllers(self) -> list[Node]:
        """The voters."""
        return [node for node in self.nodes if not node.is_broker]

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` of clients: the brokers' addresses, separated by commas."""
        return ",".join(node.address for node in self.brokers)

    @property
    def controller_bootstrap(self) -> str:
        """`controller.quorum.bootstrap.servers`."""
        return ",".join(node.address for node in self.controllers)

    def node(self, node_id: int) -> Node:
        """That node; ClusterError when there is none."""
        for each in self.nodes:
            if each.node_id == node_id:
                return each
        raise ClusterError(f"the cluster has no node {node_id}")

    def with_kind(self, node_id: int, kind: NodeKind) -> Layout:
        """The same cluster, with that broker run by the other program."""
        assert self.node(node_id).is_broker
        assert kind is not NodeKind.CONTROLLER
        return replace(
            self, nodes=tuple(replace(each, kind=kind) if each.node_id == node_id else each for each in self.nodes)
        )


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A process id, and the time of its start in clock ticks since boot: ids alone are given to others later."""

    pid: int
    start_ticks: int


class ClusterFile:
    """`cluster.json` of a directory."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / STATE_FILE

    def exists(self) -> bool:
        """Whether a cluster was made here."""
        return self.path.exists()

    def write(self, layout: Layout, processes: Mapping[int, ProcessName]) -> None:
        """Replace the file. `processes` by node id."""
        content = {
            "version": _VERSION,
            **asdict(layout),
            "processes": {str(node_id): asdict(name) for node_id, name in processes.items()},
        }
        write_durably(self.path, (json.dumps(content, indent=2) + "\n").encode(), READABLE_MODE)

    def read(self) -> tuple[Layout, dict[int, ProcessName]]:
        """The cluster, and the processes that were started last, by node id."""
        try:
            content = json.loads(self.path.read_text())
        except FileNotFoundError:
            raise ClusterError(f"{self.path.parent} holds no cluster: `pybroker cluster up` makes one") from None
        except ValueError as error:
            raise ClusterError(f"{self.path} is damaged: {error}") from None
        try:
            return _parse(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ClusterError(f"{self.path} is not what this version of pybroker writes: {error!r}") from None


def _parse(content: dict[str, Any]) -> tuple[Layout, dict[int, ProcessName]]:
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']}, but only version {_VERSION} is known")
    network = content["network"]
    layout = Layout(
        content["cluster_id"],
        tuple(Node(**{**node, "kind": NodeKind(node["kind"])}) for node in content["nodes"]),
        content["overrides"],
        None if network is None else Network(**network),
        content.get("controller_version", KAFKA_VERSION),
    )
    return layout, {int(node_id): ProcessName(**name) for node_id, name in content["processes"].items()}
