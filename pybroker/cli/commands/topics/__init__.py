"""`pybroker topics`: the topics of a running broker. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup

_NAMES = ("list", "describe", "create", "alter", "reassign", "delete")


@click.group(name="topics", cls=LazyGroup, names=_NAMES, prefix="topics.")
def command() -> None:
    """List, describe, create, alter, reassign and delete topics.

    The options are those of kafka-topics.sh, and the broker may be Apache Kafka's. `pybroker configs` changes the
    settings of a topic.

    Exit status of all: 0, 1 the broker refused or cannot be reached, 2 the command line is wrong, 130 after Ctrl-C.
    """
