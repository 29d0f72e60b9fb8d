"""`LocalCluster`: makes, starts and ends the nodes of a cluster on this machine; one directory holds all of it.

The directory has `cluster.json` and for each node `node-<id>/` with `server.properties`, `output.log` and `data/`.
Nodes are processes of their own that outlive this one: another `LocalCluster` of the directory can go on with them.
For one thread. Blocks. Fails with `ClusterError`, with the end of a node's output where that says more.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pybroker.cluster.errors import ClusterError, ProcessFailed
from pybroker.cluster.formatting import format_broker, format_controllers
from pybroker.cluster.jars import Jvm, java_command
from pybroker.cluster.layout import FIRST_CONTROLLER_ID, ClusterFile, Layout, Node, NodeKind
from pybroker.cluster.network import Network, make_network
from pybroker.cluster.node_process import NodeProcess
from pybroker.cluster.ports import free_port
from pybroker.cluster.readiness import what_is_missing
from pybroker.cluster.settings import RELEASES, node_properties
from pybroker.config.properties import format_properties
from pybroker.protocol.kafka_version import KAFKA_VERSION
from pybroker.protocol.uuids import random_uuid, uuid_to_text

READY_SECONDS = 120.0
STOP_SECONDS = 60.0
_POLL_SECONDS = 0.1
_TAIL_LINES = 20
_LOOPBACK = "127.0.0.1"
_NAMESPACE_PORT = 9092


class LocalCluster:
    """The nodes of one directory. `jvm` is how brokers of Apache Kafka are started from here."""

    def __init__(self, directory: Path, layout: Layout, processes: Mapping[int, NodeProcess]) -> None:
        self.directory = directory
        self.layout = layout
        #: Additional environment variables by node id, for nodes that this object starts.
        self.environments: dict[int, dict[str, str]] = {}
        self.jvm = Jvm()
        self._file = ClusterFile(directory)
        self._processes = dict(processes)

    @classmethod
    def make(
        cls,
        directory: Path,
        *,
        brokers: int = 0,
        jvm_brokers: int = 0,
        controllers: int = 1,
        overrides: Mapping[str, str] | None = None,
        namespaces: bool = False,
        racks: Sequence[str] = (),
        controller_version: str = KAFKA_VERSION,
    ) -> LocalCluster:
        """A new cluster with formatted log dirs; nothing of it runs yet. `brokers` are pybroker's, and come first. They
        are put into `racks` in turn. `controller_version` is one of `RELEASES`; brokers of Apache Kafka always run
        the reference version."""
        if brokers + jvm_brokers < 1 or controllers < 1:
            raise ClusterError("a cluster has at least one broker and one controller")
        if controller_version not in RELEASES:
            raise ClusterError(
                f"controllers of Apache Kafka {controller_version} cannot be started here: choose one of "
                f"{', '.join(RELEASES)}"
            )
        if ClusterFile(directory).exists():
            raise ClusterError(f"{directory} holds a cluster already")
        directory.mkdir(parents=True, exist_ok=True)
        kinds = [NodeKind.BROKER] * brokers + [NodeKind.JVM_BROKER] * jvm_brokers + [NodeKind.CONTROLLER] * controllers
        network = make_network(len(kinds)) if namespaces else None
        cluster_id, nodes = uuid_to_text(random_uuid()), _nodes(kinds, network, racks)
        layout = Layout(cluster_id, nodes, dict(overrides or {}), network, controller_version)
        cluster = cls(directory, layout, {})
        try:
            cluster._save()
            cluster._format()
        except BaseException:
            cluster.delete()
            raise
        return cluster

    @classmethod
    def open(cls, directory: Path) -> LocalCluster:
        """The cluster that this directory holds, running or not."""
        layout, names = ClusterFile(directory).read()
        return cls(directory, layout, {node_id: NodeProcess(name) for node_id, name in names.items()})

    # --- one node ---------------------------------------------------------------------------------------------------

    def node_directory(self, node_id: int) -> Path:
        """Where all of that node is."""
        return self.directory / f"node-{node_id}"

    def log_dir(self, node_id: int) -> Path:
        """Its log dir."""
        return self.node_directory(node_id) / "data"

    def output_path(self, node_id: int) -> Path:
        """The file with the node's output."""
        return self.node_directory(node_id) / "output.log"

    def state(self, node_id: int) -> str:
        """`running`, `paused` or `ended`."""
        process = self._processes.get(node_id)
        return "ended" if process is None else process.state()

    def process_id(self, node_id: int) -> int | None:
        """The process id of a node that runs or is paused."""
        return None if self.state(node_id) == "ended" else self._processes[node_id].name.pid

    def start(self, node_id: int) -> None:
        """Start the node over its log dir; it need not serve yet when this returns."""
        node = self.layout.node(node_id)
        if self.state(node_id) != "ended":
            raise ClusterError(f"node {node_id} runs already")
        properties_path = self._write_properties(node)
        if node.kind is NodeKind.BROKER:
            command = [sys.executable, "-m", "pybroker", "serve", str(properties_path)]
        else:
            jvm = self.jvm if node.is_broker else Jvm()
            version = KAFKA_VERSION if node.is_broker else self.layout.controller_version
            java = java_command("kafka.Kafka", jvm.heap_megabytes, "INFO", jvm.options, version)
            command = [*java, str(properties_path)]
        if self.layout.network is not None:
            command = self.layout.network.command_prefix(self._index(node_id)) + command
        self._processes[node_id] = NodeProcess.start(
            command, self.output_path(node_id), self.environments.get(node_id, {})
        )
        self._save()

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Send it a signal; ProcessFailed when it does not run."""
        process = self._processes.get(node_id)
        if process is None or not process.signal(number):
            raise ProcessFailed(f"node {node_id} does not run:\n{self.output_tail(node_id)}")

    def stop(self, node_id: int) -> int | None:
        """A stop in order. Its exit status, None when another process has started it. ProcessFailed when it has to be
        killed."""
        if self._terminate([node_id]):
            raise ProcessFailed(f"node {node_id} did not end in {STOP_SECONDS:g} s:\n{self.output_tail(node_id)}")
        return self._processes[node_id].exit_status

    def kill(self, node_id: int) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(node_id, signal.SIGKILL)
        self._processes[node_id].wait(STOP_SECONDS)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: it does nothing more, and its connections stay."""
        self.signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        self.signal(node_id, signal.SIGCONT)

    def set_kind(self, node_id: int, kind: NodeKind) -> None:
        """From its next start on the broker is run by that program, over the same log dir."""
        if self.state(node_id) != "ended":
            raise ClusterError(f"node {node_id} runs: stop it first")
        self.layout = self.layout.with_kind(node_id, kind)
        self._save()

    def output_tail(self, node_id: int) -> str:
        """The last lines that it wrote."""
        path = self.output_path(node_id)
        if not path.exists():
            return ""
        return "\n".join(path.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    # --- all of them ------------------------------------------------------------------------------------------------

    def up(self, timeout_seconds: float = READY_SECONDS) -> None:
        """Start what does not run, and return when every broker is unfenced and serves. If that fails, the nodes that
        were started are killed."""
        network = self.layout.network
        if network is not None and not network.exists():
            network.create(len(self.layout.nodes))
        started: list[int] = []
        try:
            for node in reversed(self.layout.nodes):  # controllers first: brokers need them
                if self.state(node.node_id) == "ended":
                    self.start(node.node_id)
                    started.append(node.node_id)
            self.wait_until_ready(timeout_seconds)
        except BaseException:
            for node_id in started:
                self._processes[node_id].signal(signal.SIGKILL)
                self._processes[node_id].wait(STOP_SECONDS)
            raise

    def wait_until_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        """Return when every broker is unfenced, serves, and knows of all others. ProcessFailed when a node has
        ended, or that takes too long."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            for node in self.layout.nodes:
                if self.state(node.node_id) == "ended":
                    tail = self.output_tail(node.node_id)
                    raise ProcessFailed(f"node {node.node_id} ({node.kind}) has ended:\n{tail}")
            missing = what_is_missing(self.layout)
            if missing is None:
                return
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"the cluster was not ready in {timeout_seconds:g} s: {missing}. What the nodes say is in "
                    f"{self.directory}/node-*/output.log"
                )
            time.sleep(_POLL_SECONDS)

    def down(self, timeout_seconds: float = STOP_SECONDS) -> list[int]:
        """End everything in order: brokers, which hand over to one another, then controllers. The ids of nodes that did
        not end in that time, each, and were killed."""
        late = self._terminate((node.node_id for node in self.layout.brokers), timeout_seconds)
        late += self._terminate((node.node_id for node in self.layout.controllers), timeout_seconds)
        if self.layout.network is not None:
            self.layout.network.remove()
        return late

    def delete(self) -> None:
        """End everything at once, and remove the directory of the cluster."""
        for process in self._processes.values():
            process.signal(signal.SIGKILL)
            process.wait(STOP_SECONDS)
        if self.layout.network is not None:
            self.layout.network.remove()
        for node in self.layout.nodes:
            shutil.rmtree(self.node_directory(node.node_id), ignore_errors=True)
        self._file.path.unlink(missing_ok=True)
        if not any(self.directory.iterdir()):
            self.directory.rmdir()

    # --- cuts -------------------------------------------------------------------------------------------------------

    def cut(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """From now on nothing of the nodes `sources` arrives at the nodes `targets`."""
        indexes = [self._index(node_id) for node_id in sources]
        for target in targets:
            self._network().cut(indexes, self._index(target))

    def heal(self) -> None:
        """Everything arrives everywhere again."""
        self._network().heal(range(len(self.layout.nodes)))

    # ----------------------------------------------------------------------------------------------------------------

    def _network(self) -> Network:
        if self.layout.network is None:
            raise ClusterError("the nodes share the machine's network: only those in namespaces can be cut off")
        return self.layout.network

    def _index(self, node_id: int) -> int:
        return self.layout.nodes.index(self.layout.node(node_id))

    def _terminate(self, node_ids: Iterable[int], timeout_seconds: float = STOP_SECONDS) -> list[int]:
        """SIGTERM to all of them at once; those that had to be killed."""
        running = [node_id for node_id in node_ids if self.state(node_id) != "ended"]
        for node_id in running:
            self._processes[node_id].signal(signal.SIGTERM)
            self._processes[node_id].signal(signal.SIGCONT)
        deadline = time.monotonic() + timeout_seconds
        late = [
            node_id for node_id in running if not self._processes[node_id].wait(max(0.0, deadline - time.monotonic()))
        ]
        for node_id in late:
            self._processes[node_id].signal(signal.SIGKILL)
            self._processes[node_id].wait(STOP_SECONDS)
        return late

    def _save(self) -> None:
        self._file.write(self.layout, {node_id: process.name for node_id, process in self._processes.items()})

    def _write_properties(self, node: Node) -> Path:
        path = self.node_directory(node.node_id) / "server.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        properties = node_properties(self.layout, node, self.log_dir(node.node_id).absolute())
        path.write_text(format_properties(properties))
        return path

    def _format(self) -> None:
        for node in self.layout.brokers:
            format_broker(self.layout, node, self.log_dir(node.node_id))
        format_controllers(self.layout, [self._write_properties(node) for node in self.layout.controllers])


def _nodes(kinds: list[NodeKind], network: Network | None, racks: Sequence[str]) -> tuple[Node, ...]:
    nodes = []
    broker_id, controller_id = 1, FIRST_CONTROLLER_ID
    for index, kind in enumerate(kinds):
        if kind is NodeKind.CONTROLLER:
            node_id, controller_id = controller_id, controller_id + 1
        else:
            node_id, broker_id = broker_id, broker_id + 1
        host, port = (_LOOPBACK, free_port()) if network is None else (network.host(index), _NAMESPACE_PORT)
        rack = racks[index % len(racks)] if racks and kind is not NodeKind.CONTROLLER else None
        nodes.append(Node(node_id, kind, host, port, uuid_to_text(random_uuid()), rack))
    return tuple(nodes)
