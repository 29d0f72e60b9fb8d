"""`pybroker profile detect`: what machine this is, and which profile it gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.profile.profile_options import load_choice, machine_options, make_console
from pybroker.cli.tables import Title, print_cells, print_text

if TYPE_CHECKING:
    from rich.console import Console

    from pybroker.profiles.choice import Choice
    from pybroker.profiles.matching import Fact


@click.command(name="detect")
@machine_options
def command(properties: str | None, overrides: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Tells the kind of this machine, the profile it gets, and why: every rule that holds and every rule that does not.

    The disks are those beneath log.dirs. A saved measurement of them outranks the kernel's word.

    Exit status: 0, or 2 when the configuration or a profile is not accepted.
    """
    choice = load_choice(properties, overrides, root)
    if as_json:
        click.echo(json.dumps(choice.as_dict(), indent=2))
        return
    console = make_console()
    _print_machine(console, choice)
    _print_rules(console, choice)
    _print_settings(console, choice)


def _print_machine(console: Console, choice: Choice) -> None:
    from rich.markup import escape

    from pybroker.profiles.describe import describe

    rows = [[f"[bold]{escape(name)}[/]", escape(text)] for name, text in describe(choice)]
    print_cells(console, [Title(""), Title("", is_prose=True)], rows)


def _print_rules(console: Console, choice: Choice) -> None:
    from rich.markup import escape

    console.print()
    rows = []
    for candidate in choice.candidates:
        for rule in candidate.rules:
            mark = "[green]holds[/]" if rule.matches else "[dim]does not[/]"
            wanted = " or ".join(map(_word, rule.wanted if isinstance(rule.wanted, tuple) else (rule.wanted,)))
            name = f"[green]{candidate.document.name}[/]" if candidate.matches else candidate.document.name
            rows.append([name, mark, escape(f"{rule.fact} = {wanted}"), escape(_word(rule.found))])
    titles = [Title("profile"), Title(""), Title("rule", is_prose=True), Title("found", is_prose=True)]
    print_cells(console, titles, rows)


def _word(value: Fact) -> str:
    """As TOML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print_settings(console: Console, choice: Choice) -> None:
    from rich.markup import escape

    console.print()
    print_text(console, f"profile {choice.profile.name}: {choice.reason}", "bold green")
    console.print()
    titles = [Title("key"), Title("value"), Title("from", is_prose=True), Title("why", is_prose=True)]
    rows = [[each.key, str(each.value), escape(each.source), escape(each.why)] for each in choice.settings.values()]
    print_cells(console, titles, rows)
    if choice.advice is not None:
        console.print()
        print_text(console, choice.advice, "yellow")
