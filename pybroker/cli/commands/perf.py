"""`pybroker perf`: how fast a broker is, and where its time goes. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(name="perf", cls=LazyGroup, names=("flame",), prefix="perf_")
def command() -> None:
    """See how fast a broker is, and where its time goes."""
