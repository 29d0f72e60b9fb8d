"""Options that say whose settings are meant, in both of Kafka's forms: --topic orders, and --entity-type topics
--entity-name orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pybroker.client.configs import Resource, ResourceType

Command = TypeVar("Command", bound=Callable[..., Any])

_TYPES = ("topics", "brokers", "groups", "client-metrics")
_OPTIONS = [
    click.option("--topic", metavar="NAME", help="Of this topic."),
    click.option("--broker", metavar="ID", help="Of this broker."),
    click.option("--broker-defaults", is_flag=True, help="Of all brokers."),
    click.option("--group", metavar="NAME", help="Of this group."),
    click.option("--client-metrics", metavar="NAME", help="Of this subscription to metrics of clients."),
    click.option("--entity-type", type=click.Choice(_TYPES), help="The same in two words, with one of the next two."),
    click.option("--entity-name", metavar="NAME"),
    click.option("--entity-default", is_flag=True, help="The default, of brokers."),
]


def entity_options(command: Command) -> Command:
    """The command gets them all as keywords; `entity` makes a resource of them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def entity(
    *,
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    group: str | None,
    client_metrics: str | None,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
) -> tuple[ResourceType, Resource | None]:
    """The type, and the resource unless all of the type are meant. A usage error unless exactly one is named."""
    from pybroker.client.configs import CLUSTER_DEFAULT, ResourceType

    types = dict(
        zip(
            _TYPES,
            (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS),
            strict=True,
        )
    )
    short = {
        ResourceType.TOPIC: topic,
        ResourceType.BROKER: CLUSTER_DEFAULT if broker_defaults else broker,
        ResourceType.GROUP: group,
        ResourceType.CLIENT_METRICS: client_metrics,
    }
    named = [(kind, name) for kind, name in short.items() if name is not None]
    if len(named) + (entity_type is not None) != 1 or (broker_defaults and broker is not None):
        raise click.UsageError(
            "say whose settings: one of --topic, --broker, --broker-defaults, --group, --client-metrics, --entity-type"
        )
    if named:
        if entity_name is not None or entity_default:
            raise click.UsageError("--entity-name and --entity-default go with --entity-type")
        return named[0][0], named[0]
    kind = types[entity_type or ""]
    if entity_default:
        if kind is not ResourceType.BROKER or entity_name is not None:
            raise click.UsageError("--entity-default is for --entity-type brokers, and needs no --entity-name")
        return kind, (kind, CLUSTER_DEFAULT)
    return kind, (kind, entity_name) if entity_name is not None else None
