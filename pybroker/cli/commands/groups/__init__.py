"""`pybroker groups`: groups of consumers and their offsets. Its commands are beside it."""

from __future__ import annotations

import click

from pybroker.cli.lazy_group import LazyGroup

_NAMES = ("list", "describe", "members", "reset-offsets", "delete", "delete-offsets")


@click.group(name="groups", cls=LazyGroup, names=_NAMES, prefix="groups.")
def command() -> None:
    """See how far behind groups are; move or delete their offsets.

    The options are those of kafka-consumer-groups.sh, and the broker may be Apache Kafka's.

    Exit status of all: 0, 1 the broker refused or cannot be reached, 2 the command line is wrong, 130 after Ctrl-C.
    """
