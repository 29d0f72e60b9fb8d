"""Apache Kafka 4.3.0 beside us: fetch its jars, run a combined KRaft node on loopback, run its tools.

`python -m pybroker.testing.kafka fetch` makes the library dir ready; `KafkaBroker` is the node, `run_tool` any of
Kafka's main classes. The jars are fetched by name with Maven from Maven Central and stay outside the checkout.
Can fail: `KafkaMissing` when java or mvn is not there; `ProcessFailed` when a child ends or stays silent.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from pybroker.testing.process import ChildProcess, ProcessFailed, free_port

KAFKA_VERSION = "4.3.0"
SCALA_VERSION = "2.13"

#: Group, name and version at Maven Central.
Artifact = tuple[str, str, str]

# What Kafka's own distribution holds for a broker and its tools. The tools jar pulls in Connect's runtime; its REST
# stack is a hundred jars nobody starts here, but leaving it out would mean a list of exclusions to maintain.
_ARTIFACTS = (
    ("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
"""


class KafkaMissing(RuntimeError):
    """A program that is needed to fetch or run Apache Kafka is not installed."""


def _program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise KafkaMissing(f"{name} was not found: Apache Kafka needs it (Debian: apt-get install {package})")
    return path


def cache_root() -> Path:
    """Where jars are kept: `$PYBROKER_CACHE` or `~/.cache/pybroker`."""
    return Path(os.environ.get("PYBROKER_CACHE") or Path.home() / ".cache" / "pybroker")


def cache_dir() -> Path:
    """The dir of this Kafka version in it."""
    return cache_root() / f"kafka-{KAFKA_VERSION}"


def random_uuid() -> str:
    """A random id in Kafka's form: 22 base64url characters that do not start with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pom(artifacts: Sequence[Artifact]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>pybroker</groupId><artifactId>libs</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def fetch_jars(directory: Path, artifacts: Sequence[Artifact], *, transitive: bool = True) -> Path:
    """`directory`/libs with these artifacts, and with what they depend on if `transitive`, filled first if need be (one
    fetch at a time; a half-made dir is never seen)."""
    libs, complete = directory / "libs", directory / "libs.complete"
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory / "fetch.lock"):
        if complete.exists():
            return libs
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            pom = Path(scratch) / "pom.xml"
            pom.write_text(_pom(artifacts))
            command = [_program("mvn", "maven"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            command += ["-DincludeScope=runtime", f"-DoutputDirectory={scratch}/libs"]
            command += [] if transitive else ["-DexcludeTransitive=true"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                names = ", ".join(f"{name} {version}" for _group, name, version in artifacts)
                raise ProcessFailed(f"mvn could not fetch {names}:\n{done.stdout[-4000:]}")
            libs.mkdir(exist_ok=True)
            for jar in Path(scratch, "libs").iterdir():
                jar.replace(libs / jar.name)
        complete.touch()
    return libs


def fetch() -> Path:
    """The dir with Kafka's jars, filled first if need be."""
    return fetch_jars(cache_dir(), _ARTIFACTS)


def _java_command(main_class: str, heap_megabytes: int, log_level: str, options: Sequence[str]) -> list[str]:
    libs = fetch()
    log4j = cache_dir() / f"log4j2-{log_level.lower()}.properties"
    if not log4j.exists():
        scratch = log4j.with_suffix(f".{os.getpid()}")
        scratch.write_text(_LOG4J.format(level=log_level))
        scratch.replace(log4j)
    command = [_program("java", "openjdk-17-jre-headless"), f"-Xmx{heap_megabytes}m", *options]
    return [*command, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{libs}/*", main_class]


def tool_command(main_class: str, *arguments: str, heap_megabytes: int = 256) -> list[str]:
    """The command line that runs one of Kafka's main classes, for callers that drive the process themselves."""
    return [*_java_command(main_class, heap_megabytes, "WARN", _JAVA_OPTIONS), *arguments]


def run_tool(
    main_class: str, *arguments: str, stdin: bytes | None = None, timeout_seconds: float = 240.0, check: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """Run one of Kafka's main classes to its end; with `check`, a nonzero status raises `ProcessFailed`."""
    done = subprocess.run(
        tool_command(main_class, *arguments), input=stdin, capture_output=True, timeout=timeout_seconds, check=False
    )
    if check and done.returncode != 0:
        output = (done.stdout + done.stderr).decode(errors="replace")[-4000:]
        raise ProcessFailed(f"{main_class} {' '.join(arguments)} ended with status {done.returncode}:\n{output}")
    return done


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
        java_options: Sequence[str] = _JAVA_OPTIONS,
        command_prefix: Sequence[str] = (),
    ) -> None:
        """Format if new, start, and wait until it serves. Benchmarks give their own `java_options` and heap."""
        self._temporary_dir = Path(tempfile.mkdtemp(prefix="kafka-test-")) if log_dir is None else None
        self.log_dir = log_dir if log_dir is not None else Path(str(self._temporary_dir)) / "data"
        self.node_id = node_id
        self.cluster_id = cluster_id or random_uuid()
        self.port = port if port is not None else free_port()
        self.controller_port = controller_port if controller_port is not None else free_port()
        self._overrides = dict(overrides or {})
        self._heap_megabytes = heap_megabytes
        self._java_options = tuple(java_options)
        self._command_prefix = list(command_prefix)
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
        run_tool("kafka.tools.StorageTool", *arguments)

    def start(self) -> None:
        """Start (again) over the same dir and ports, and wait until it serves."""
        if self._child is not None:
            raise ProcessFailed(f"Apache Kafka already runs as process {self._child.pid}")
        java = _java_command("kafka.Kafka", self._heap_megabytes, "INFO", self._java_options)
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
    parser = argparse.ArgumentParser(prog="python -m pybroker.testing.kafka", description=__doc__)
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
