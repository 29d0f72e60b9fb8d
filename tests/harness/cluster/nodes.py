"""Nodes as child processes from `server.properties` files, for tests of what such a file and its log dir hold."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pybroker.cluster.jars import JAVA_OPTIONS, java_command
from tests.harness.broker import parse_ready_line
from tests.harness.process import ChildProcess

_HEAP_MEGABYTES = 256
_START_SECONDS = 180.0


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """A file like `server.properties`."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def single_broker(directory: Path, port: int, **settings: str) -> Path:
    """`server.properties` of a broker that runs alone, in `directory`; `settings` have _ for each dot of a key."""
    return write_properties(
        directory / "single.properties",
        {
            "node.id": "1",
            "log.dirs": str(directory / "data"),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "pybroker.metrics.listener": "127.0.0.1:0",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
            **{name.replace("_", "."): value for name, value in settings.items()},
        },
    )


class Nodes:
    """A context manager: what still runs at its end is killed."""

    def __init__(self) -> None:
        self._started: list[ChildProcess] = []

    def serve(self, properties: Path) -> ChildProcess:
        """A broker of pybroker that serves."""
        child = self._spawn([sys.executable, "-m", "pybroker", "serve"], properties)
        child.wait_for_line(parse_ready_line, _START_SECONDS)
        return child

    def kafka(self, *properties: Path) -> list[ChildProcess]:
        """Nodes of Apache Kafka that have started; voters get on together only."""
        command = java_command("kafka.Kafka", _HEAP_MEGABYTES, "INFO", JAVA_OPTIONS)
        found = [self._spawn(command, each) for each in properties]
        for each in found:
            each.wait_for_line(lambda line: "Kafka Server started" in line or None, _START_SECONDS)
        return found

    def _spawn(self, command: list[str], properties: Path) -> ChildProcess:
        child = ChildProcess([*command, str(properties)], properties.with_suffix(".out"))
        self._started.append(child)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._started:
            each.kill()
