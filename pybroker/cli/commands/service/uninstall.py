"""`pybroker service uninstall`: systemd forgets the broker."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pybroker.cli.common import fail
from pybroker.cli.service_steps import step_options, tell_and_make


@click.command(name="uninstall")
@step_options
def command(root: Path, dry_run: bool, yes: bool) -> None:
    """Stop the service and take away what `install` wrote.

    Data in the log dirs, settings in /etc/pybroker and the user pybroker stay.

    Exit status: 0, 1 when something fails or you say no.
    """
    from pybroker.service.deployment import DeploymentError
    from pybroker.service.installation import uninstall_steps

    try:
        steps = uninstall_steps(root)
    except (DeploymentError, OSError) as error:
        fail(str(error))
    if not steps:
        click.echo("Nothing is installed.")
        return
    click.echo("To take the service away:")
    if not tell_and_make(steps, dry_run=dry_run, yes=yes):
        sys.exit(0 if dry_run else 1)
    click.echo("Log dirs, /etc/pybroker and the user pybroker have stayed.")
