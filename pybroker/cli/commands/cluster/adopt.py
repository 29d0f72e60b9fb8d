"""`pybroker cluster adopt`: may pybroker go on with the log dirs of a stopped broker of Apache Kafka?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from pybroker.cli.common import fail
from pybroker.cli.files.finding_lines import print_findings

_EXIT_FINDINGS = 3


@click.command(name="adopt")
@click.argument("log_dirs", nargs=-1, required=True, metavar="LOG_DIR...", type=click.Path(path_type=Path))
@click.option(
    "--config",
    "server_properties",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The server.properties that the broker ran with, to be looked at as well.",
)
@click.option("--check", is_flag=True, required=True, help="Look, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(log_dirs: tuple[Path, ...], server_properties: Path | None, check: bool, as_json: bool) -> None:
    """Say beforehand what would stop pybroker from taking the place of a stopped broker of Apache Kafka.

    LOG_DIR are all directories of its log.dirs. Taking its place is then to start `pybroker serve` with the same
    node.id and log.dirs: there is nothing to convert, and the way back is to start Apache Kafka there again.

    Exit status: 0 nothing is in the way, 3 something is, 1 the directories cannot be read.
    """
    del check  # required, so that the command line says what it does
    from pybroker.cluster.adoption import examine_adoption

    try:
        findings = examine_adoption(log_dirs, server_properties)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    faults = [each for each in findings if each.severity.is_fault]
    if as_json:
        click.echo(json.dumps({"adoptable": not faults, "findings": [each.as_dict() for each in findings]}, indent=2))
    else:
        print_findings(findings)
    sys.exit(_EXIT_FINDINGS if faults else 0)
