"""`pybroker config`: what a configuration means, and what there is to configure. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(name="config", cls=LazyGroup, names=("check", "diff", "docs"), prefix="config.")
def command() -> None:
    """Look at a configuration before a broker does: what is wrong, what differs from the defaults, what there is.

    PROPERTIES is a server.properties file, Kafka's of any age or ours. Nothing is written but what is asked for.
    """
