"""`pybroker log stray`: partitions that a broker has set aside. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(name="stray", cls=LazyGroup, names=("list", "restore", "delete"), prefix="log.stray.")
def command() -> None:
    """List, take back or delete what a broker has set aside.

    A start renames the directory of a partition that the metadata do not have to NAME.ID-stray. No broker reads or
    removes it.
    """
