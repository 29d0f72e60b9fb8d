"""Options of the commands that talk to a broker, and the connection they share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pybroker.cli.common import EXIT_INTERRUPTED, address_of, fail

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "PYBROKER_BOOTSTRAP_SERVER"

bootstrap_option = click.option(
    "--bootstrap-server",
    "--bootstrap",
    "bootstrap",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    envvar=BOOTSTRAP_VARIABLE,
    show_envvar=True,
    metavar="HOST:PORT[,…]",
    help="A broker of the cluster, ours or Apache Kafka's.",
)


def one_bootstrap_option(of_type: click.ParamType[Any] | None = None) -> Callable[[Command], Command]:
    """The same for commands that load one broker: of several addresses they take the first."""
    return click.option(
        "--bootstrap-server",
        "--bootstrap",
        "bootstrap",
        type=of_type,
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        envvar=BOOTSTRAP_VARIABLE,
        show_envvar=True,
        metavar="HOST:PORT",
        help="The broker.",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_timeout_option = click.option(
    "--timeout-ms",
    default=30_000,
    show_default=True,
    type=click.IntRange(1),
    help="How long to wait for a broker.",
)


def broker_options(command: Command) -> Command:
    """--bootstrap-server, --timeout-ms and --json; the command gets `bootstrap`, `timeout_ms` and `as_json`."""
    return bootstrap_option(_timeout_option(json_option(command)))


@contextmanager
def connected(bootstrap: str, timeout_ms: int = 30_000) -> Iterator[Cluster]:
    """A cluster to ask. A failure inside ends the command: its text on standard error and exit status 1."""
    from pybroker.client.cluster import Cluster
    from pybroker.client.errors import ClientError

    addresses = [address_of("--bootstrap-server", each.strip()) for each in bootstrap.split(",")]
    try:
        with Cluster(addresses, timeout_seconds=timeout_ms / 1000) as cluster:
            yield cluster
    except ClientError as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def pairs(option: str, values: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE each, as a callback of an option would get them; a usage error for anything else."""
    found = {}
    for each in values:
        name, sign, value = each.partition("=")
        if not name.strip() or not sign:
            raise click.UsageError(f"{option} {each!r}: accepted is NAME=VALUE")
        found[name.strip()] = value
    return found


def topic_partitions(option: str, text: str) -> tuple[str, list[int] | None]:
    """TOPIC or TOPIC:0,1 as topic and partitions (None: all); a usage error for anything else."""
    topic, colon, numbers = text.partition(":")
    parts = numbers.split(",")
    if not topic or (colon and not all(each.isascii() and each.isdecimal() for each in parts)):
        raise click.UsageError(f"{option} {text!r}: accepted is TOPIC or TOPIC:PARTITION,PARTITION")
    return topic, [int(each) for each in parts] if colon else None
