"""`pybroker log`: tools for the files of a stopped broker, ours or Apache Kafka's. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(
    name="log", cls=LazyGroup, names=("dump", "check", "repair", "accept-loss", "stats", "stray"), prefix="log."
)
def command() -> None:
    """Look at, check and save the files of a stopped broker, ours or Apache Kafka's.

    A PATH is a log dir, a partition's directory, or one file: .log, .index, .timeindex, .txnindex, .snapshot,
    .checkpoint, leader-epoch-checkpoint, partition.metadata, quorum-state, meta.properties, or a checkpoint of a log
    dir. Nothing but `repair`, `accept-loss` and `stray` writes, and a broker that runs makes what these tools say out
    of date at once.
    """
