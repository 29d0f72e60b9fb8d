"""`pybroker bench`: what becomes of benchmarks' results. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(name="bench", cls=LazyGroup, names=("publish",), prefix="bench.")
def command() -> None:
    """Bring the results of benchmarks from many machines together."""
