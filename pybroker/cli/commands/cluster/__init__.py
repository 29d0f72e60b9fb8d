"""`pybroker cluster`: a cluster on this machine, led by Apache Kafka's controllers. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(
    name="cluster", cls=LazyGroup, names=("up", "status", "down", "adopt", "grow", "shrink"), prefix="cluster."
)
def command() -> None:
    """Start, look at and end a cluster on this machine; have a broker take part in one that is elsewhere.

    Its controllers are Apache Kafka's, whose jars Maven fetches once; its brokers are pybroker's, Apache Kafka's, or
    both beside each other.
    """
