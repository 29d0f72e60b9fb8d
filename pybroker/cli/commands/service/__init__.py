"""`pybroker service`: the broker as a service of systemd. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(name="service", cls=LazyGroup, names=("install", "uninstall", "status"), prefix="service.")
def command() -> None:
    """Run the broker as a service of systemd.

    Installing and uninstalling say what they will do and ask first. They never touch data, nor settings that are there.
    """
