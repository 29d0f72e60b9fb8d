"""The reference Apache Kafka beside us: fetch its jars, run a combined KRaft node on loopback, run its tools.

`python -m tests.harness.kafka fetch` makes the library dir ready; `KafkaBroker` is the node, `run_tool` any of
Kafka's main classes. The jars are fetched by name with Maven from Maven Central and stay outside the checkout.
Can fail: `KafkaMissing` when java or mvn is not there; `ProcessFailed` when a child ends or stays silent.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from pybroker.cluster.errors import KafkaMissing, ProcessFailed
from pybroker.cluster.jars import (
    JAVA_OPTIONS,
    cache_dir,
    cache_root,
    fetch,
    fetch_jars,
    java_command,
    run_tool,
    tool_command,
)
from pybroker.cluster.ports import free_port
from pybroker.protocol.kafka_version import KAFKA_VERSION
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from tests.harness.process import ChildProcess

__all__ = ["KAFKA_VERSION", "KafkaBroker", "cache_dir", "cache_root", "fetch", "fetch_jars", "run_tool", "tool_command"]


class KafkaBroker:
    """A combined broker and controller. `bootstrap` is its address.

    A new dir is formatted as a standalone quorum; a dir that already has `meta.properties` is opened as it is: then
    `node_id` must be the dir's, and `controller_port` the one its voter set names.
    """

    def __init__(
        self,
        log_dir: Path | None = None,
        *,
        node_id: int = 1,
        cluster_id: str | None = None,
        port: int | None = None,
        controller_port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        heap_megabytes: int = 384,
        java_options: Sequence[str] = JAVA_OPTIONS,
        command_prefix: Sequence[str] = (),
        version: str = KAFKA_VERSION,
    ) -> None:
        """Format if new, start, and wait until it serves. Benchmarks give their own `java_options` and heap."""
        self._temporary_dir = Path(tempfile.mkdtemp(prefix="kafka-test-")) if log_dir is None else None
        self.log_dir = log_dir if log_dir is not None else Path(str(self._temporary_dir)) / "data"
        self.node_id = node_id
        self.cluster_id = cluster_id or uuid_to_text(random_uuid())
        self.port = port if port is not None else free_port()
        self.controller_port = controller_port if controller_port is not None else free_port()
        self._overrides = dict(overrides or {})
        self._heap_megabytes = heap_megabytes
        self._java_options = tuple(java_options)
        self._command_prefix = list(command_prefix)
        self._version = version
        self.output_path = self.log_dir.parent / f"{self.log_dir.name}.out"
        self._properties_path = self.log_dir.parent / f"{self.log_dir.name}.server.properties"
        self._child: ChildProcess | None = None
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self._write_properties()
        if not (self.log_dir / "meta.properties").exists():
            self._format()
        self.start()

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> ChildProcess:
        """The child; raises `ProcessFailed` when there is none."""
        if self._child is None:
            raise ProcessFailed("Apache Kafka is stopped")
        return self._child

    def _write_properties(self) -> None:
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._overrides,
        }
        self._properties_path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def _format(self) -> None:
        arguments = ["format", "--cluster-id", self.cluster_id, "--config", str(self._properties_path), "--standalone"]
        run_tool("kafka.tools.StorageTool", *arguments, version=self._version)

    def start(self) -> None:
        """Start (again) over the same dir and ports, and wait until it serves."""
        if self._child is not None:
            raise ProcessFailed(f"Apache Kafka already runs as process {self._child.pid}")
        java = java_command("kafka.Kafka", self._heap_megabytes, "INFO", self._java_options, self._version)
        child = ChildProcess([*self._command_prefix, *java, str(self._properties_path)], self.output_path)
        try:
            child.wait_for_line(lambda line: "Kafka Server started" in line or None, 180.0)
        except BaseException:
            child.kill()
            raise
        self._child = child

    def stop(self, timeout_seconds: float = 60.0) -> None:
        """A clean shutdown: SIGTERM and wait."""
        self.process.stop(timeout_seconds)
        self._child = None

    def kill(self) -> None:
        """SIGKILL and reap; the dir stays as it is."""
        self.process.kill()
        self._child = None

    def rss_bytes(self) -> int:
        """Resident memory of the JVM."""
        return self.process.rss_bytes()

    def cpu_seconds(self) -> float:
        """CPU time of the JVM so far."""
        return self.process.cpu_seconds()

    def tool(self, main_class: str, *arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run a tool against this node: `--bootstrap-server` is added to the arguments."""
        return run_tool(main_class, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)

    def __enter__(self) -> KafkaBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._child is not None:
                self.stop()
        finally:
            if self._temporary_dir is not None and error is None:
                shutil.rmtree(self._temporary_dir, ignore_errors=True)


def main() -> int:
    """`fetch` prints the library dir; `run CLASS ARGS...` runs a tool with this terminal's streams."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.kafka", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch Apache Kafka's jars once and print where they are")
    run = commands.add_parser("run", help="run one of Kafka's main classes")
    run.add_argument("main_class")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    try:
        if options.command == "fetch":
            print(fetch())
            return 0
        return subprocess.run(tool_command(options.main_class, *options.arguments), check=False).returncode
    except (KafkaMissing, ProcessFailed) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
