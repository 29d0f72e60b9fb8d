"""`pybroker configs describe`: what is set, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pybroker.cli.admin.client_settings import describe_clients
from pybroker.cli.admin.entity_options import clients, entity, entity_options
from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.output import Column, is_terminal, plural, print_heading, print_rows

if TYPE_CHECKING:
    from pybroker.client.configs import Resource, Setting

_COLUMNS = [
    Column("entity", "of"),
    Column("name", "setting"),
    Column("value", "value"),
    Column("source", "source"),
]


@click.command(name="describe")
@broker_options
@entity_options
@click.option("--all", "everything", is_flag=True, help="Defaults and what stands in the broker's file, too.")
@click.option("--config", "names", multiple=True, metavar="NAME", help="Only this setting, wherever it comes from.")
def command(
    bootstrap: str, timeout_ms: int, as_json: bool, everything: bool, names: tuple[str, ...], **entities: Any
) -> None:
    """Show settings, and where each value comes from.

    Without --all, only those that were set with `pybroker configs alter` or the like.

    \b
    pybroker configs describe --topic orders --all
    pybroker configs describe --entity-type topics
    pybroker configs describe --entity-type users --entity-type clients

    --json has synonyms as well: what would hold if the value were deleted, strongest first.
    """
    from pybroker.client import configs

    who = clients(**entities)
    if who is not None:
        with connected(bootstrap, timeout_ms) as cluster:
            describe_clients(cluster, who, names, as_json)
        return
    kind, resource = entity(**entities)
    with connected(bootstrap, timeout_ms) as cluster:
        resources = [resource] if resource else [(kind, name) for name in configs.list_resources(cluster, kind)]
        found = configs.describe(cluster, resources) if resources else {}
    rows = [
        _row(resource, each)
        for resource, settings in sorted(found.items())
        for each in settings
        if (each.name in names if names else everything or each.is_own(resource))
    ]
    columns = _COLUMNS
    if resource is not None and is_terminal() and not as_json:
        print_heading(configs.text_of(resource), plural(len(rows), "setting"))
        columns = _COLUMNS[1:]
    if rows or not is_terminal():
        print_rows(columns, rows, as_json)


def _row(resource: Resource, each: Setting) -> dict[str, Any]:
    return {
        "entity_type": resource[0].name.lower(),
        "entity": resource[1] or "<default>",
        "name": each.name,
        "value": "(sensitive)" if each.is_sensitive else each.value,
        "source": each.source.name.lower().removesuffix("_config").replace("_", " "),
        "read_only": each.is_read_only,
        "sensitive": each.is_sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source.name.lower()}
            for synonym in each.synonyms
        ],
    }
