"""Options that the commands of `pybroker perf` share, and pbload's arguments that follow from them."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from pybroker.cli.broker_options import one_bootstrap_option

_Command = TypeVar("_Command", bound=Callable[..., Any])
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SCALES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Size(click.ParamType[int]):
    """Bytes: a whole number, with k, m or g behind it for 1024-based multiples."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        found = re.fullmatch(r"(\d+)([kmg]?)", str(value).lower())
        if not found:
            self.fail(f"{value!r} should be a number of bytes, such as 16384, 16k or 1m", param, ctx)
        return int(found[1]) * _SCALES[found[2]]


class Bootstrap(click.ParamType["Address"]):
    """host:port of one broker, as an IPv4 address and a port."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Its address."""
        if isinstance(value, Address):
            return value
        host, _, port = str(value).partition(",")[0].strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            self.fail(f"{value!r} should be HOST:PORT", param, ctx)
        try:
            found = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: a label of more than 63 characters
            self.fail(f"{host} has no IPv4 address: {error}", param, ctx)
        return Address(str(value), str(found[0][4][0]), int(port))


@dataclass(frozen=True)
class Address:
    """Where the broker is: as it was given, and for a socket."""

    text: str
    host: str
    port: int

    @property
    def pair(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    def words(self) -> list[str]:
        """pbload's arguments."""
        return ["--host", self.host, "--port", str(self.port)]


def _apply(options: Sequence[Callable[[_Command], _Command]]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_FILE = click.Path(dir_okay=False, path_type=Path)

#: Where, for how long, and what becomes of the result: `Common` takes them.
common_options = _apply(
    [
        one_bootstrap_option(Bootstrap()),
        click.option("--topic", default="perf", show_default=True, help="The topic; a producer makes it if missing."),
        click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Of the topic."),
        click.option("--seconds", type=click.FloatRange(0.1), default=10, show_default=True, help="To measure."),
        click.option("--warmup", type=click.FloatRange(0), default=1, show_default=True, help="Seconds before that."),
        click.option(
            "--interval", type=click.FloatRange(0.05), default=1, show_default=True, help="Of a point in time."
        ),
        click.option("--cpus", metavar="LIST", help="Keep the generator on these CPUs, as taskset takes them: 2,3."),
        click.option("--output", type=_FILE, help="Save the result as JSON, for `perf report` and `bench publish`."),
        click.option("--json", "as_json", is_flag=True, help="Print that JSON instead of a table."),
        click.option("--report", type=click.Path(file_okay=False, path_type=Path), help="Directory for plots."),
        click.option("--hdr", type=_FILE, help="Save a log of histograms for HdrHistogram's tools."),
        click.option("--quiet", is_flag=True, help="No progress line."),
    ]
)

#: Options for the contents of batches: `batch_words` takes them.
batch_options = _apply(
    [
        click.option("--in-flight", type=click.IntRange(1), default=5, show_default=True, help="Per connection."),
        click.option("--batch-bytes", type=Size(), default="16k", show_default=True, help="Before compression."),
        click.option("--record-bytes", type=Size(), help="Of a value: 1k, or a line of the payload file."),
        click.option("--codec", type=click.Choice(_CODECS), default="none", show_default=True),
        click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True),
        click.option("--topic-config", metavar="K=V[,K=V]", help="Settings of a topic that is made."),
    ]
)

BATCH_NAMES = ("in_flight", "batch_bytes", "record_bytes", "codec", "acks", "topic_config")

#: Options for producers alone: `producer_words` takes them.
producer_options = _apply(
    [
        click.option("--producers", type=click.IntRange(1), default=1, show_default=True, help="Connections."),
        click.option("--rate", type=click.FloatRange(0), default=0, help="Batches per second of all; 0: no bound."),
        click.option("--keys", type=click.IntRange(0), default=0, help="Keys, which choose partitions; 0: none."),
        click.option(
            "--payload-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Values are the lines of this file, or with --record-bytes its pieces.",
        ),
    ]
)


def batch_words(
    *,
    in_flight: int,
    batch_bytes: int,
    record_bytes: int | None,
    codec: str,
    acks: str,
    topic_config: str | None,
) -> list[str]:
    """pbload's arguments for `batch_options`."""
    words = ["--in-flight", str(in_flight), "--batch-bytes", str(batch_bytes), "--codec", codec, "--acks", acks]
    words += ["--record-bytes", str(record_bytes)] if record_bytes else []
    return words + (["--topic-config", topic_config] if topic_config else [])


def producer_words(*, producers: int, rate: float, keys: int, payload_file: Path | None) -> list[str]:
    """pbload's arguments for `producer_options`."""
    words = ["--connections", str(producers)]
    words += ["--rate", f"{rate:g}"] if rate else []
    words += ["--keys", str(keys)] if keys else []
    return words + (["--payload-file", str(payload_file)] if payload_file else [])


def producer_facts(payload_file: Path | None) -> dict[str, Any]:
    """The additional facts in a producer's result."""
    return {"payload_file": payload_file.name} if payload_file else {}
