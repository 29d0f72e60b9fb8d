"""`pybroker config diff`: what a server.properties has otherwise than the defaults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from pybroker.cli.profile_options import config_options, load_config, make_console, make_table

if TYPE_CHECKING:
    from pybroker.config.difference import Difference


@click.command(name="diff")
@config_options
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(properties: str | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the settings that differ from their defaults, and the line that sets each.

    A setting that repeats its default is left out, and so is one that nobody knows (`pybroker config check` names it).
    Secrets are not shown.

    Exit status: 0, or 2 when the configuration is not accepted.
    """
    from pybroker.config.difference import differences

    found = differences(load_config(properties, overrides))
    if as_json:
        click.echo(json.dumps({"differences": [each.as_dict() for each in found]}, indent=2))
    else:
        _print(found)


def _print(found: list[Difference]) -> None:
    from rich.markup import escape

    table = make_table("setting", "value", "default", "set at")
    for each in found:
        default = "not set" if each.default is None else each.default or "empty"
        table.add_row(*(escape(text) for text in (each.name, each.value or "empty", default, each.where)))
    make_console().print(table if found else "nothing differs from the defaults")
