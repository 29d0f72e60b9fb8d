"""`pybroker configs`: settings of what is in a running cluster. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup


@click.group(name="configs", cls=LazyGroup, names=("describe", "alter"), prefix="configs.")
def command() -> None:
    """Look at and change settings of topics, brokers and groups, and quotas and credentials of clients.

    The options are those of kafka-configs.sh, and the broker may be Apache Kafka's. Settings made here are kept in the
    cluster's metadata and win over the broker's file.

    Exit status of all: 0, 1 the broker refused or cannot be reached, 2 the command line is wrong, 130 after Ctrl-C.
    """
