"""`pybroker doctor`: what is wrong with a broker, why it matters, and what to do."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pybroker.cli.common import address_of
from pybroker.cli.files.finding_lines import print_findings
from pybroker.cli.profile.profile_options import config_options

if TYPE_CHECKING:
    from pybroker.doctor.finding import Finding
    from pybroker.doctor.rings import Removed

_EXIT_FINDINGS = 1
_EXIT_BAD_CONFIG = 2


@click.command(name="doctor")
@config_options
@click.option(
    "--bootstrap-server",
    "--bootstrap",
    "bootstrap",
    metavar="HOST:PORT",
    help="The broker's address, if its listeners do not tell it.",
)
@click.option("--fix", is_flag=True, help="Remove tail rings of log dirs that were deleted, and say which.")
@click.option("--include-filled", is_flag=True, help="With --fix: those that may hold records, too.")
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(
    properties: str | None,
    overrides: tuple[str, ...],
    bootstrap: str | None,
    fix: bool,
    include_filled: bool,
    as_json: bool,
) -> None:
    """Look at a running or stopped broker: what is wrong, why it matters, what to do. Changes nothing without --fix.

    --fix frees the memory of tail rings whose log dir was deleted for certain. One that may only be unmounted keeps its
    rings, and so does one that exists: the next start of its broker replays them. A ring that may hold records stays
    as well, unless --include-filled is given.

    Takes what `pybroker serve` takes, and is best run on the broker's machine, as its user or as root. An error is
    something that does not work or is damaged, a warning a risk; advice costs time, a note is worth knowing.

    Exit status: 0 nothing is wrong (advice and notes do not count), 1 there are errors or warnings, 2 the
    configuration is not accepted.
    """
    if include_filled and not fix:
        raise click.UsageError("--include-filled needs --fix")
    address = None if bootstrap is None else address_of("--bootstrap-server", bootstrap)
    removed: list[Removed] = []
    try:
        findings, removed = _examine(properties, overrides, address, fix=fix, include_filled=include_filled)
    except ImportError as error:
        findings = [_of_extension(error)]
    faults = [each for each in findings if each.severity.is_fault]
    if as_json:
        told = {"healthy": not faults, "findings": [each.as_dict() for each in findings]}
        told |= {"removed": [asdict(each) for each in removed]} if fix else {}
        click.echo(json.dumps(told, indent=2))
    else:
        for each in removed:
            click.echo(str(each))
        print_findings(findings)
    sys.exit(_EXIT_FINDINGS if faults else 0)


def _examine(
    properties: str | None,
    overrides: tuple[str, ...],
    address: tuple[str, int] | None,
    *,
    fix: bool,
    include_filled: bool,
) -> tuple[list[Finding], list[Removed]]:
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.definition import ConfigError
    from pybroker.doctor.examine import examine
    from pybroker.doctor.rings import remove_orphaned
    from pybroker.doctor.subject import make_subject

    try:
        config = BrokerConfig.load(properties, overrides)
        subject = make_subject(config, properties, overrides, address)
        removed = remove_orphaned(subject, include_filled=include_filled) if fix else []
        return examine(subject), removed
    except ConfigError as error:
        click.echo(f"pybroker: {error}", err=True)
        sys.exit(_EXIT_BAD_CONFIG)


def _of_extension(error: ImportError) -> Finding:
    from pybroker.doctor.finding import Finding, Severity

    return Finding(
        Severity.ERROR,
        "extension",
        f"Python {sys.version.split()[0]}, {sys.executable}",
        str(error),
        "the broker does not start, and the rest cannot be examined: package, extension and Python do not fit together",
        "install its wheel anew into this Python (`pip install --force-reinstall FILE`); in a checkout, `make build`",
    )
