"""`pybroker profile explain`: one key of a profile, or all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.profile.profile_options import load_choice, machine_options, make_console
from pybroker.cli.tables import Title, print_cells

if TYPE_CHECKING:
    from pybroker.profiles.explain import Explanation


@click.command(name="explain")
@click.argument("key")
@machine_options
def command(key: str, properties: str | None, overrides: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Explains a KEY of a profile: its effect, its value here, where that comes from, and why.

    KEY is a profile's key, such as spin_us, or the broker's setting that wins over it, such as pybroker.spin.us; `all`
    explains every one.

    Exit status: 0, or 2 for an unknown KEY, or when the configuration is not accepted.
    """
    from pybroker.profiles.explain import explain, find_keys
    from pybroker.profiles.library import shipped_profiles

    keys = find_keys(key)
    if not keys:
        raise click.UsageError(f"{key!r} is nothing a profile sets; accepted: all, {', '.join(find_keys('all'))}")
    choice = load_choice(properties, overrides, root)
    shipped = shipped_profiles()
    explanations = [explain(choice, each, shipped) for each in keys]
    if as_json:
        click.echo(json.dumps([each.as_dict() for each in explanations], indent=2))
    else:
        for explanation in explanations:
            _print(explanation)


def _print(explanation: Explanation) -> None:
    from rich.markup import escape

    console = make_console()
    rows = [[f"[bold]{escape(name)}[/]", escape(text)] for name, text in explanation.lines()]
    print_cells(console, [Title(""), Title("", is_prose=True)], rows)
    console.print()
