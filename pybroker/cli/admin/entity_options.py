"""Options that say whose settings are meant, in both of Kafka's forms: --topic orders, and --entity-type topics
--entity-name orders. Users, client ids and addresses have quotas, and users credentials, in place of settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pybroker.cli.name_options import complete_groups, complete_topics

if TYPE_CHECKING:
    from pybroker.client.configs import Resource, ResourceType
    from pybroker.client.quotas import Who

Command = TypeVar("Command", bound=Callable[..., Any])

_TYPES = ("topics", "brokers", "groups", "client-metrics")
#: By Kafka's word for the option: the protocol's.
_CLIENT_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
_OPTIONS = [
    click.option("--topic", metavar="NAME", shell_complete=complete_topics, help="Of this topic."),
    click.option("--broker", metavar="ID", help="Of this broker."),
    click.option("--broker-defaults", is_flag=True, help="Of all brokers."),
    click.option("--group", metavar="NAME", shell_complete=complete_groups, help="Of this group."),
    click.option("--client-metrics", metavar="NAME", help="Of this subscription to metrics of clients."),
    click.option("--user", metavar="NAME", help="Quotas and credentials of this user; with --client of that client."),
    click.option("--user-defaults", is_flag=True, help="Quotas of users who have none of their own."),
    click.option("--client", metavar="ID", help="Quotas of this client id."),
    click.option("--client-defaults", is_flag=True, help="Quotas of client ids that have none of their own."),
    click.option("--ip", metavar="ADDRESS", help="Quotas of this address."),
    click.option("--ip-defaults", is_flag=True, help="Quotas of addresses that have none of their own."),
    click.option(
        "--entity-type",
        "entity_types",
        multiple=True,
        type=click.Choice((*_TYPES, *_CLIENT_TYPES)),
        help="The same in two words, with one of the next two; users and clients go together.",
    ),
    click.option("--entity-name", "entity_names", multiple=True, metavar="NAME"),
    click.option("--entity-default", "entity_defaults", count=True, help="The default, of all types but topics."),
]


def entity_options(command: Command) -> Command:
    """The command gets them all as keywords; `clients` makes quotas' entities of them, or else `entity` a resource."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def clients(**options: Any) -> Who | None:
    """The client whose quotas are meant, or None: the settings of a resource. A usage error for what is neither."""
    from pybroker.client.quotas import EVERY

    who: Who = {}
    for word, kind in (("user", "user"), ("client", "client-id"), ("ip", "ip")):
        if options[word] is not None and options[f"{word}_defaults"]:
            raise click.UsageError(f"--{word} and --{word}-defaults exclude each other")
        if options[word] is not None:
            who[kind] = options[word]
        elif options[f"{word}_defaults"]:
            who[kind] = None
    types = [_CLIENT_TYPES[word] for word in options["entity_types"] if word in _CLIENT_TYPES]
    if not who and not types:
        return None
    names = _names(options["entity_names"], options["entity_defaults"]) if types else []
    if len(types) != len(options["entity_types"]) or len(set(types)) != len(types) or len(names) > len(types):
        raise click.UsageError("each --entity-type stands once, with at most one name, and beside users only clients")
    named = dict(zip(types, [*names, *[EVERY] * (len(types) - len(names))], strict=True))
    others = ("topic", "broker", "group", "client_metrics")
    if (who and types) or options["broker_defaults"] or any(options[other] is not None for other in others):
        raise click.UsageError("say whose quotas with --user, --client, --ip or with --entity-type, and nothing beside")
    if "" in who.values() or "" in named.values():
        raise click.UsageError("a name cannot be empty; --entity-default or --user-defaults and the like mean the rest")
    who = who or named
    if "ip" in who and len(who) > 1:
        raise click.UsageError("an address has quotas of its own, not with a user or a client")
    return who


def _names(names: tuple[str, ...], defaults: int) -> list[str | None]:
    if names and defaults:
        raise click.UsageError(
            "of which type the default is meant is not clear: use --user NAME --client-defaults or the like"
        )
    return [*names] or [None] * defaults


def entity(
    *,
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    group: str | None,
    client_metrics: str | None,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_defaults: int,
    **_clients: Any,
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
    if len(named) + len(entity_types) != 1 or (broker_defaults and broker is not None):
        raise click.UsageError(
            "say whose settings: one of --topic, --broker, --broker-defaults, --group, --client-metrics, --user, "
            "--client, --ip, --entity-type"
        )
    if named:
        if entity_names or entity_defaults:
            raise click.UsageError("--entity-name and --entity-default go with --entity-type")
        return named[0][0], named[0]
    kind = types[entity_types[0]]
    if len(entity_names) > 1:
        raise click.UsageError("--entity-name is given more than once")
    if entity_defaults:
        if kind is not ResourceType.BROKER or entity_names:
            raise click.UsageError("--entity-default is for --entity-type brokers, and needs no --entity-name")
        return kind, (kind, CLUSTER_DEFAULT)
    return kind, (kind, entity_names[0]) if entity_names else None
