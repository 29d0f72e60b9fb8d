"""Findings for people: what is wrong, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pybroker.cli.files.paths import printable
from pybroker.cli.tables import wrap

if TYPE_CHECKING:
    from pybroker.doctor.finding import Finding

_COLOURS = {"error": "red", "warning": "yellow", "advice": "cyan", "note": "white"}


def print_findings(findings: Sequence[Finding]) -> None:
    """All of them, and how many there are."""
    for each in findings:
        name = click.style(each.severity.value, fg=_COLOURS[each.severity.value], bold=True)
        click.echo(f"{name} {click.style(each.kind, bold=True)}: {printable(each.subject)}")
        for title, text in (("what", each.what), ("why", each.why), ("do", each.remedy)):
            if text:
                click.echo(wrap(printable(text), _width(), f"  {title + ':':6}", " " * 8))
        click.echo()
    fault_count = sum(each.severity.is_fault for each in findings)
    others = len(findings) - fault_count
    summary = "nothing is wrong" if fault_count == 0 else f"{fault_count} found"
    click.echo(summary + (f"; {others} worth knowing" if others else ""))


def _width() -> int:
    import shutil

    return min(120, shutil.get_terminal_size((100, 24)).columns)
