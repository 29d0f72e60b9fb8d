"""`pybroker configs alter`: set values, and let go of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import click

from pybroker.cli.admin.client_settings import alter_clients
from pybroker.cli.admin.entity_options import clients, entity, entity_options
from pybroker.cli.broker_options import broker_options, connected, pairs
from pybroker.cli.name_options import complete_settings
from pybroker.cli.output import print_json

# A comma ends a value unless it stands in brackets.
_PAIR = re.compile(r"\s*([^=,\s]+)\s*=\s*(?:\[([^\]]*)\]|([^,]*))\s*(?:,|$)")


def parse_values(texts: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE,NAME=[VALUE,VALUE] each, Kafka's form; a usage error for what is none."""
    found: dict[str, str] = {}
    for text in texts:
        position = 0
        while position < len(text):
            match = _PAIR.match(text, position)
            if match is None:
                raise click.UsageError(f"--add-config {text!r}: accepted is NAME=VALUE,NAME=[VALUE,VALUE]")
            found[match[1]] = match[2] if match[2] is not None else match[3].strip()
            position = match.end()
    return found


@click.command(name="alter")
@broker_options
@entity_options
@click.option(
    "--add-config",
    multiple=True,
    metavar="NAME=VALUE,…",
    shell_complete=complete_settings,
    help="Set; values with a comma as [a,b].",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=complete_settings,
    help="Set this one, commas and all.",
)
@click.option(
    "--delete-config",
    multiple=True,
    metavar="NAME,…",
    shell_complete=complete_settings,
    help="Let go of this setting.",
)
@click.option("--validate-only", is_flag=True, help="Ask whether it would be accepted, and change nothing.")
def command(
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
    add_config: tuple[str, ...],
    configs: tuple[str, ...],
    delete_config: tuple[str, ...],
    validate_only: bool,
    **entities: Any,
) -> None:
    """Change settings; what is not named stays. Either all is accepted or nothing is changed; but credentials are
    changed one by one.

    \b
    pybroker configs alter --topic t --add-config cleanup.policy=[compact,delete]
    pybroker configs alter --broker-defaults --delete-config log.cleaner.threads
    pybroker configs alter --user ana --client app --add-config consumer_byte_rate=1e6
    pybroker configs alter --user ana --add-config SCRAM-SHA-256=[password=secret]
    """
    from pybroker.client import configs as client

    who = clients(**entities)
    values = {**parse_values(add_config), **pairs("--config", configs)}
    deleted = [name.strip() for text in delete_config for name in text.split(",") if name.strip()]
    if not values and not deleted:
        raise click.UsageError("say what to change, with --add-config, --config or --delete-config")
    if who is not None:
        with connected(bootstrap, timeout_ms) as cluster:
            alter_clients(cluster, who, values, deleted, validate_only, as_json)
        return
    kind, resource = entity(**entities)
    if resource is None:
        raise click.UsageError("say which of them with --entity-name")
    with connected(bootstrap, timeout_ms) as cluster:
        client.alter(cluster, resource, values=values, delete=deleted, validate_only=validate_only)
    if as_json:
        named = {"entity_type": kind.name.lower(), "entity": resource[1] or "<default>"}
        print_json({**named, "set": values, "deleted": deleted, "altered": not validate_only})
    else:
        did = "would be accepted" if validate_only else "changed"
        click.echo(f"{client.text_of(resource)}: {did}")
