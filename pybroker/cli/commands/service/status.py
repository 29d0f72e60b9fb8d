"""`pybroker service status`: is the service installed, does it run, and how is it?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.common import fail
from pybroker.cli.service_steps import root_option

if TYPE_CHECKING:
    from pybroker.service.state import ServiceState

_EXIT_INACTIVE = 3
_EXIT_NOT_INSTALLED = 4


@click.command(name="status")
@root_option
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(root: Path, as_json: bool) -> None:
    """Show what is installed, and what systemd says of it.

    Exit status, as of `systemctl status`: 0 while it serves clients, 3 while it does not, 4 when it is not installed; 1
    when that cannot be told.
    """
    from pybroker.service.state import read_state

    try:
        state = read_state(root)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if as_json:
        click.echo(json.dumps(state.as_dict(), indent=2))
    else:
        _print(state)
    if not state.is_installed:
        sys.exit(_EXIT_NOT_INSTALLED)
    sys.exit(0 if state.is_active else _EXIT_INACTIVE)


def _print(state: ServiceState) -> None:
    if not state.is_installed:
        click.echo("Not installed; `pybroker service install` says what it takes.")
    for each in state.files:
        click.echo(f"{each.path}{': ' + each.note if each.note else ''}")
    if not state.manager:
        return
    said = state.manager
    click.echo(
        f"{said['ActiveState']} ({said['SubState']}), {said['UnitFileState'] or 'no unit'}: {said['StatusText']}"
    )
    if said["MainPID"] != "0":
        click.echo(f"process {said['MainPID']} since {said['ActiveEnterTimestamp']}, {said['NRestarts']} restarts")
    elif said["Result"] != "success":
        click.echo(f"it ended: {said['Result']}; `journalctl -u pybroker` has the reason")
    if said["NeedDaemonReload"] == "yes":
        click.echo("systemd has not read the files again: systemctl daemon-reload")
