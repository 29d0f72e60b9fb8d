"""`pybroker groups delete`: groups with their offsets."""

from __future__ import annotations

import sys

import click

from pybroker.cli.admin.group_options import groups_option
from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.common import EXIT_FAILED
from pybroker.cli.output import print_json


@click.command(name="delete")
@broker_options
@groups_option
def command(bootstrap: str, timeout_ms: int, as_json: bool, names: tuple[str, ...]) -> None:
    """Delete groups that have no members."""
    from pybroker.client import groups
    from pybroker.client.errors import RequestError

    if not names:
        raise click.UsageError("say which groups, with --group")
    has_failed = False
    with connected(bootstrap, timeout_ms) as cluster:
        for name in dict.fromkeys(names):
            error = None
            try:
                groups.delete(cluster, name)
            except RequestError as failure:
                error = failure
            has_failed |= error is not None
            if as_json:
                print_json({"group": name, "deleted": error is None, **({"error": str(error)} if error else {})})
            elif error is not None:
                click.echo(f"pybroker: {error}", err=True)
            else:
                click.echo(f"deleted group {name}")
    if has_failed:
        sys.exit(EXIT_FAILED)
