"""`pybroker perf report`: plots of results that were saved before."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pybroker.cli.perf.perf_run import check_plots, print_summary, write_report


@click.command(name="report")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), required=True, help="Where plots go.")
def command(path: Path, directory: Path) -> None:
    """Draw a result that --output saved: PNG files, and a page that holds everything.

    Exit status: 0, 2 PATH is no such result.
    """
    from pybroker.perf.load import Load

    check_plots()
    try:
        document = json.loads(path.read_text())
        loads = [Load.from_json(each) for each in document["loads"]]
        known = document["version"] == 1 and bool(loads)
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{path} is no result of pybroker perf: {type(error).__name__} {error}") from None
    if not known:
        raise click.UsageError(f"{path} is a result of another version, or has no load")
    print_summary(loads)
    write_report(document, loads, directory, quiet=False)
