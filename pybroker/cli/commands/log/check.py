"""`pybroker log check`: everything that does not add up in files of a stopped broker."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from pybroker.cli.files.paths import open_paths, printable

if TYPE_CHECKING:
    from pybroker.storage.offline.checks.findings import Finding, Report

_EXIT_FINDINGS = 1
_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


@click.command(name="check")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--deep", is_flag=True, help="Decompress every batch and look at each record as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per finding and line, then one with the sums.")
@click.option("--limit", default=100, show_default=True, help="Findings of one kind to show per file; 0 shows all.")
def command(paths: tuple[str, ...], deep: bool, as_json: bool, limit: int) -> None:
    """Find every inconsistency: CRCs, offsets, epochs, indexes, snapshots, checkpoints, the metadata log.

    Exit status: 0 nothing is wrong (what is only worth knowing does not count), 1 something was found, 2 a PATH is
    nothing that a broker keeps.
    """
    from pybroker.metadata.offline import check_metadata
    from pybroker.storage.offline.checks.check import check
    from pybroker.storage.offline.checks.findings import Report

    report = Report(limit if limit > 0 else sys.maxsize)
    started_ns = time.monotonic_ns()
    for target in open_paths(paths):
        check(target, report, deep=deep, check_metadata=check_metadata)
    elapsed_seconds = (time.monotonic_ns() - started_ns) / 1e9
    if as_json:
        _print_json(report)
    else:
        _print_table(report, elapsed_seconds)
    sys.exit(_EXIT_FINDINGS if report.faults else 0)


def _print_json(report: Report) -> None:
    for finding in report.findings:
        click.echo(json.dumps(finding.as_dict()))
    sums = {"files": report.checked_files, "bytes": report.checked_bytes, "faults": len(report.faults)}
    left_out = sum(report.left_out().values())
    if left_out > 0:
        sums["left_out"] = left_out
    click.echo(json.dumps({"checked": sums}))


def _print_table(report: Report, elapsed_seconds: float) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    for finding in report.findings:
        style = _STYLES[finding.severity]
        place, text = escape(printable(_place(finding))), escape(printable(finding.text))
        console.print(f"[{style}]{finding.severity:7}[/] {finding.kind}: {place}: {text}")
    for (path, kind), count in report.left_out().items():
        console.print(f"[dim]{count} more of {kind} in {escape(printable(str(path)))}[/]")
    speed = report.checked_bytes / max(elapsed_seconds, 1e-9) / 1e6
    read = (
        f"{report.checked_files} files, {report.checked_bytes:,} bytes in {elapsed_seconds:.2f} s ({speed:,.0f} MB/s)"
    )
    faults = len(report.faults) + sum(report.left_out().values())
    console.print(f"{read}: " + (f"[bold red]{faults} found[/]" if report.faults else "[green]nothing is wrong[/]"))


def _place(finding: Finding) -> str:
    return str(finding.path) if finding.position is None else f"{finding.path}@{finding.position}"
