"""`pybroker groups list`: all groups."""

from __future__ import annotations

from dataclasses import asdict

import click

from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.output import Column, print_rows

_COLUMNS = [
    Column("group", "group"),
    Column("state", "state"),
    Column("type", "type"),
    Column("protocol_type", "protocol"),
    Column("coordinator", "coordinator", number=True, ids=True),
]


@click.command(name="list")
@broker_options
@click.option("--state", "states", metavar="STATE,…", help="Only groups in one of these, such as stable,empty.")
@click.option("--type", "types", metavar="TYPE,…", help="Only these: classic, consumer, share, streams.")
def command(bootstrap: str, timeout_ms: int, as_json: bool, states: str | None, types: str | None) -> None:
    """List the groups of all brokers."""
    from pybroker.client import groups

    with connected(bootstrap, timeout_ms) as cluster:
        found = groups.list_groups(cluster)
    rows = [
        {"group": each.name, **{key: value for key, value in asdict(each).items() if key != "name"}}
        for each in found
        if _is_among(each.state, states) and _is_among(each.type, types)
    ]
    print_rows(_COLUMNS, rows, as_json)


def _is_among(value: str, wanted: str | None) -> bool:
    return wanted is None or value.lower() in {each.strip().lower() for each in wanted.split(",")}
