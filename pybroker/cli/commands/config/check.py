"""`pybroker config check`: what is wrong with a server.properties, and what is worth saying about it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from pybroker.cli.profile.profile_options import config_options

if TYPE_CHECKING:
    from pybroker.config.check import Finding

_EXIT_WARNINGS = 1
_EXIT_ERRORS = 2


@click.command(name="check")
@config_options
@click.option("--quiet", is_flag=True, help="Errors and warnings alone, no notes.")
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(properties: str | None, overrides: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """Check a server.properties without starting anything.

    Every finding is told, with its line. An error keeps a broker from starting. A warning wants the file changed: an
    unknown key, with the one that may be meant; a key from ZooKeeper's time, with its successor; a key that is set
    twice. A note is worth knowing: an old name that still counts, a setting without effect, and why.

    Exit status: 0 nothing or notes alone, 1 there are warnings, 2 there are errors, or the file cannot be read.
    """
    from pybroker.config.check import Severity

    findings = [each for each in _check(properties, overrides) if not quiet or each.severity is not Severity.NOTE]
    counts = {severity: sum(each.severity is severity for each in findings) for severity in Severity}
    if as_json:
        rows = [each.as_dict() for each in findings]
        click.echo(json.dumps({"starts": not counts[Severity.ERROR], "findings": rows}, indent=2))
    else:
        _print(findings)
        summary = ", ".join(
            f"{count} {severity.value}{'s' if count > 1 else ''}" for severity, count in counts.items() if count
        )
        click.echo(f"{properties or 'the command line'}: {summary or 'nothing to say'}")
    sys.exit(_EXIT_ERRORS if counts[Severity.ERROR] else _EXIT_WARNINGS if counts[Severity.WARNING] else 0)


def _check(properties: str | None, overrides: tuple[str, ...]) -> list[Finding]:
    """The findings, and when there is no error among them what is wrong with the hardware profile."""
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.check import Severity, check, of_error
    from pybroker.config.definition import ConfigError
    from pybroker.profiles import load_profile

    findings = check(properties, overrides)
    if not any(each.severity is Severity.ERROR for each in findings):
        try:
            load_profile(BrokerConfig.load(properties, overrides))
        except ConfigError as error:
            findings.insert(0, of_error(error))
    return findings


def _print(findings: list[Finding]) -> None:
    colours = {"error": "red", "warning": "yellow", "note": "cyan"}
    for each in findings:
        name = each.severity.value
        click.echo(str(each).replace(f"{name}: ", click.style(f"{name}: ", fg=colours[name], bold=True), 1))
