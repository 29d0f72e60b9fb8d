"""`pybroker profile`: what this machine is, and what the broker makes of it. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(
    name="profile", cls=LazyGroup, names=("detect", "measure", "tune", "limit", "check", "explain"), prefix="profile."
)
def command() -> None:
    """Know the machine: which hardware profile it gets and why, and what to set on it.

    A profile is what the broker is started with on a class of machines. These commands look at what the log dirs of a
    configuration lie on: give them the server.properties and overrides that `pybroker serve` gets. They change nothing
    and need no root.
    """
