"""`pybroker profile check`: what on this machine a broker would want otherwise, and how to change it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.profile.profile_options import load_choice, machine_options, make_console
from pybroker.cli.tables import Title, print_cells, print_text

if TYPE_CHECKING:
    from rich.console import Console

    from pybroker.profiles.check import Finding

_EXIT_FINDINGS = 1
_STYLES = {"ok": "green", "unknown": "dim", "advice": "yellow", "warning": "bold red"}


@click.command(name="check")
@machine_options
@click.option("--why", "with_reasons", is_flag=True, help="Show everything that was looked at, and why it matters.")
def command(properties: str | None, overrides: tuple[str, ...], root: Path, as_json: bool, with_reasons: bool) -> None:
    """Compares this machine with what a broker wants: kernel, file systems, disks, memory, limits, clocks.

    Prints what to change, with the commands that change it and those that undo them. None of them is run, and this
    command needs no root. With --why a table follows. Each of its lines has a status: ok, unknown (the machine does
    not say), advice (it costs time), warning (it costs data, or a lot of time).

    Exit status: 0 nothing is to be done, 1 there is advice or a warning, 2 the configuration is not accepted.
    """
    from pybroker.profiles.check import Status, check
    from pybroker.profiles.check.probe import probe_here

    choice = load_choice(properties, overrides, root)
    findings = check(choice, probe_here(choice.machine) if root == Path("/") else None)
    to_do = [each for each in findings if each.status in (Status.ADVICE, Status.WARNING)]
    if as_json:
        click.echo(json.dumps({"findings": [each.as_dict() for each in findings]}, indent=2))
    else:
        _print(findings, to_do, with_reasons)
    sys.exit(_EXIT_FINDINGS if to_do else 0)


def _print(findings: list[Finding], to_do: list[Finding], with_reasons: bool) -> None:
    console = make_console()
    for each in to_do:
        _print_remedy(console, each)
    outcome = f"{len(to_do)} to look after" if to_do else "nothing to be done"
    ask = "" if with_reasons else "; --why shows all, with the reasons"
    print_text(console, f"{len(findings)} looked at, {outcome}{ask}")
    if with_reasons:
        console.print()
        _print_reasons(console, findings)


def _print_reasons(console: Console, findings: list[Finding]) -> None:
    from rich.markup import escape

    rows = []
    for each in findings:
        cells = [escape(text) for text in (each.subject, each.found, each.wanted, each.why)]
        rows.append([f"[{_STYLES[each.status.value]}]{each.status.value}[/]", *cells])
    titles = [Title(name, is_prose=name != "status") for name in ("status", "what", "found", "wanted", "why")]
    print_cells(console, titles, rows)


def _print_remedy(console: Console, finding: Finding) -> None:
    from rich.markup import escape

    status, remedy = finding.status.value, finding.remedy
    who = "" if remedy is None else " (as root)" if remedy.needs_root else " (as the broker's user)"
    print_text(console, f"{status}: {finding.subject}: {finding.found} → {finding.wanted}{who}", _STYLES[status])
    if remedy is not None:
        for name, text in (("fix", remedy.fix), ("undo", remedy.undo), ("keep", remedy.keep)):
            if text:
                console.print(f"  {name}:  {escape(text)}", soft_wrap=True)
    console.print()
