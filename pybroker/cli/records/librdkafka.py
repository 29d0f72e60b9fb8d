"""librdkafka, through confluent-kafka: what `pybroker produce` and `pybroker consume` send and receive records with.

It is an extra, since nothing else of pybroker needs it, and imported when one of these two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from pybroker.cli.broker_options import pairs
from pybroker.cli.common import fail

Command = TypeVar("Command", bound=Callable[..., Any])

# Emergencies: what fails is told by the command, in its own words.
_LOG_LEVEL = 0


def client_properties_option(kafkas_name: str) -> Callable[[Command], Command]:
    """--command-property, and `kafkas_name` as Kafka's tools have called it; the command gets `properties`."""
    return click.option(
        "--command-property",
        kafkas_name,
        "properties",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of librdkafka.",
    )


def library() -> Any:
    """The module; ends the command when it is not installed."""
    try:
        import confluent_kafka
    except ImportError:
        fail("this needs confluent-kafka: pip install confluent-kafka")
    return confluent_kafka


def settings(bootstrap: str, properties: Iterable[str], **more: Any) -> dict[str, Any]:
    """For a client: `more` with dots for underscores, and `properties` over all."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "pybroker",
        "log_level": _LOG_LEVEL,
        "error_cb": _on_error,
        **{name.replace("_", "."): value for name, value in more.items()},
        **pairs("--command-property", properties),
    }


def _on_error(error: Any) -> None:
    """On the command's thread, in a poll. The library goes on trying."""
    if error.code() == library().KafkaError._ALL_BROKERS_DOWN:
        click.echo(f"pybroker: {error.str()}, trying again", err=True)
