"""`pybroker profile check`: what on this machine a broker would want otherwise, and how to change it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.profile_options import load_choice, machine_options, make_console, make_table

if TYPE_CHECKING:
    from rich.console import Console

    from pybroker.profiles.check import Finding

_EXIT_FINDINGS = 1
_STYLES = {"ok": "green", "unknown": "dim", "advice": "yellow", "warning": "bold red"}


@click.command(name="check")
@machine_options
def command(properties: str | None, overrides: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Compares this machine with what a broker wants: kernel, file systems, disks, memory, limits, clocks.

    Each line has a status: ok, unknown (the machine does not say), advice (it costs time), warning (it costs data, or
    a lot of time). Below the table stand the commands that change what is not ok, and those that undo them. None of
    them is run, and this command needs no root.

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
        _print(findings, to_do)
    sys.exit(_EXIT_FINDINGS if to_do else 0)


def _print(findings: list[Finding], to_do: list[Finding]) -> None:
    from rich.markup import escape

    console = make_console()
    table = make_table("status", "what", "found", "wanted", "why")
    for each in findings:
        style = _STYLES[each.status.value]
        cells = (escape(text) for text in (each.subject, each.found, each.wanted, each.why))
        table.add_row(f"[{style}]{each.status.value}[/]", *cells)
    console.print(table)
    for each in to_do:
        _print_remedy(console, each)
    console.print(f"\n{len(findings)} looked at, " + (f"{len(to_do)} to look after" if to_do else "nothing to be done"))


def _print_remedy(console: Console, finding: Finding) -> None:
    from rich.markup import escape

    remedy = finding.remedy
    if remedy is None:
        return
    who = "as root" if remedy.needs_root else "as the broker's user"
    console.print(f"\n[bold]{escape(finding.subject)}[/]: {escape(finding.found)} → {escape(finding.wanted)} ({who})")
    for name, text in (("fix", remedy.fix), ("undo", remedy.undo), ("keep", remedy.keep)):
        if text:
            console.print(f"  {name}:  {escape(text)}", soft_wrap=True)
