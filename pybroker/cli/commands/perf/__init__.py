"""`pybroker perf`: how fast a broker is, and where its time goes. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup

_NAMES = ("produce", "consume", "end-to-end", "mixed", "report", "flame")


@click.group(name="perf", cls=LazyGroup, names=_NAMES, prefix="perf.")
def command() -> None:
    """See how fast a broker is, and where its time goes."""
