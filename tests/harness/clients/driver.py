"""Every client of the matrix as two command lines: produce a file's lines, consume as a member of a group.

All take `key:value` lines; what a consumer prints is read back by its own `pattern`. No state, no thread.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.harness.clients.command import HEARTBEAT_INTERVAL_MS, LINGER_MS, SESSION_TIMEOUT_MS
from tests.harness.kafka import cache_dir, tool_command

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GO_SOURCES = Path(__file__).resolve().parents[3] / "tests" / "clients" / "go"
_PLAIN = re.compile(rb"^(\d+) (\d+) (.*)$")
_CONSOLE = re.compile(rb"^Partition:(\d+)\tOffset:(\d+)\t(.*)$")


class ClientMissing(RuntimeError):
    """A program of the matrix is not installed."""


@dataclass(frozen=True)
class Variant:
    """How records are sent."""

    codec: str
    acks: str
    idempotent: bool = False

    def __str__(self) -> str:
        """For example `lz4-all-idempotent`."""
        return f"{self.codec}-{self.acks}{'-idempotent' if self.idempotent else ''}"


ACKS = (("0", False), ("1", False), ("all", False), ("all", True))
VARIANTS = tuple(Variant(codec, acks, idempotent) for codec in CODECS for acks, idempotent in ACKS)


@dataclass(frozen=True)
class Consumed:
    """One record as a consumer saw it."""

    partition: int
    offset: int
    value: bytes


class Client:
    """A client program; subclasses give its command lines."""

    name: str
    pattern = _PLAIN
    # True when a record that arrives after SIGTERM is committed but not printed: such a member must leave while idle.
    drops_on_sigterm = False
    # True when a rebalance must not meet a member that asks where a partition begins: librdkafka takes the answer as
    # outdated, asks again, and reads the partition, though it is another member's by then.
    reads_revoked = False

    def check(self) -> None:
        """Raise `ClientMissing` when it cannot run here; build what has to be built."""

    def produce_command(self, bootstrap: str, topic: str, variant: Variant, lines: Path) -> list[str]:
        """The command that delivers every line of the file and ends with status 0."""
        raise NotImplementedError

    def consume_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """The command that prints records until SIGTERM."""
        raise NotImplementedError

    def read_back(self, output: Path) -> list[Consumed]:
        """What a consumer printed so far; an unfinished last line is left out."""
        records = []
        whole, _, _ = output.read_bytes().rpartition(b"\n")
        for line in whole.splitlines():
            match = self.pattern.match(line)
            if match is None:
                raise ValueError(f"{self.name} printed a line that is no record: {line!r}")
            records.append(Consumed(int(match[1]), int(match[2]), match[3]))
        return records


class Kcat(Client):
    """kcat, on whatever librdkafka it was linked with."""

    name = "kcat"
    drops_on_sigterm = True
    reads_revoked = True

    def check(self) -> None:
        """kcat is a package of the distribution."""
        if shutil.which("kcat") is None:
            raise ClientMissing("kcat was not found (Debian: apt-get install kcat)")

    def produce_command(self, bootstrap: str, topic: str, variant: Variant, lines: Path) -> list[str]:
        """See `Client`."""
        properties = {
            "acks": variant.acks,
            "enable.idempotence": str(variant.idempotent).lower(),
            "linger.ms": str(LINGER_MS),
        }
        flags = [word for key, value in properties.items() for word in ("-X", f"{key}={value}")]
        command = ["kcat", "-P", "-q", "-b", bootstrap, "-t", topic, "-z", variant.codec, "-K", ":", *flags]
        return [*command, "-l", str(lines)]

    def consume_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """See `Client`."""
        properties = {
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
            "session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "debug": "cgrp,topic,fetch,consumer",
        }
        flags = [word for key, value in properties.items() for word in ("-X", f"{key}={value}")]
        return ["kcat", "-b", bootstrap, "-q", "-u", "-f", "%p %o %s\\n", *flags, "-G", group, topic]


class PythonClient(Client):
    """One of our own programs around a Python client."""

    def __init__(self, name: str, module: str, *, reads_revoked: bool = False) -> None:
        """`module` is run with this interpreter."""
        self.name = name
        self.reads_revoked = reads_revoked
        self._words = [sys.executable, "-m", f"tests.harness.clients.{module}"]

    def produce_command(self, bootstrap: str, topic: str, variant: Variant, lines: Path) -> list[str]:
        """See `Client`."""
        command = [*self._words, "produce", "--bootstrap", bootstrap, "--topic", topic, "--codec", variant.codec]
        command += ["--acks", variant.acks, "--input", str(lines)]
        return [*command, "--idempotent"] if variant.idempotent else command

    def consume_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """See `Client`."""
        return [*self._words, "consume", "--bootstrap", bootstrap, "--topic", topic, "--group", group]


class JavaConsole(Client):
    """Kafka's own console producer and consumer."""

    name = "java"
    pattern = _CONSOLE

    def check(self) -> None:
        """A JRE; the jars are fetched when first needed."""
        if shutil.which("java") is None:
            raise ClientMissing("java was not found (Debian: apt-get install openjdk-17-jre-headless)")

    def produce_command(self, bootstrap: str, topic: str, variant: Variant, lines: Path) -> list[str]:
        """See `Client`. The console producer reads stdin only."""
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", variant.codec]
        arguments += ["--command-property", f"acks={variant.acks}"]
        arguments += ["--command-property", f"enable.idempotence={str(variant.idempotent).lower()}"]
        arguments += ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
        java = tool_command("org.apache.kafka.tools.ConsoleProducer", *arguments, heap_megabytes=128)
        return ["sh", "-c", 'input=$1; shift; exec "$@" <"$input"', "console-producer", str(lines), *java]

    def consume_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """See `Client`."""
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"]
        for key in ("print.partition", "print.offset"):
            arguments += ["--formatter-property", f"{key}=true"]
        for key, value in (
            ("heartbeat.interval.ms", HEARTBEAT_INTERVAL_MS),
            ("session.timeout.ms", SESSION_TIMEOUT_MS),
        ):
            arguments += ["--command-property", f"{key}={value}"]
        return tool_command("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, heap_megabytes=128)


class Franz(Client):
    """franz-go, built from `tests/clients/go` by the Go on the path (1.18 or newer)."""

    name = "franz-go"

    @property
    def program(self) -> Path:
        """Where the build goes: beside the jars, outside the checkout."""
        return cache_dir().parent / "franz"

    def check(self) -> None:
        """Build; Go's own cache makes a second time quick."""
        if shutil.which("go") is None:
            raise ClientMissing("go was not found (Debian: apt-get install golang-go)")
        self.program.parent.mkdir(parents=True, exist_ok=True)
        command = ["go", "build", "-o", str(self.program), "."]
        done = subprocess.run(command, cwd=GO_SOURCES, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"go build failed:\n{done.stderr}")

    def produce_command(self, bootstrap: str, topic: str, variant: Variant, lines: Path) -> list[str]:
        """See `Client`."""
        command = [str(self.program), "produce", "-bootstrap", bootstrap, "-topic", topic, "-codec", variant.codec]
        return [*command, "-acks", variant.acks, f"-idempotent={str(variant.idempotent).lower()}", "-input", str(lines)]

    def consume_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """See `Client`."""
        return [str(self.program), "consume", "-bootstrap", bootstrap, "-topic", topic, "-group", group]


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Kcat(),
        PythonClient("confluent-kafka", "confluent", reads_revoked=True),
        PythonClient("kafka-python", "kafka_python"),
        PythonClient("aiokafka", "aiokafka_client"),
        JavaConsole(),
        Franz(),
    )
}
