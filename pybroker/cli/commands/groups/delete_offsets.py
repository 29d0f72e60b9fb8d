"""`pybroker groups delete-offsets`: let a group forget that it has read a topic."""

from __future__ import annotations

import sys

import click

from pybroker.cli.admin.group_options import group_option, partitions_of
from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.common import EXIT_FAILED
from pybroker.cli.name_options import complete_topics
from pybroker.cli.output import print_json


@click.command(name="delete-offsets")
@broker_options
@group_option
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:0,1]",
    help="Of these partitions.",
    shell_complete=complete_topics,
)
def command(bootstrap: str, timeout_ms: int, as_json: bool, group: str, topics: tuple[str, ...]) -> None:
    """Let a group forget what it has read.

    Only of topics that none of its members is subscribed to.
    """
    from pybroker.client import groups

    with connected(bootstrap, timeout_ms) as cluster:
        results = groups.delete_offsets(cluster, group, partitions_of(cluster, topics))
    for (topic, index), error in results.items():
        if as_json:
            named = {"group": group, "topic": topic, "partition": index}
            print_json({**named, "deleted": error is None, **({"error": str(error)} if error else {})})
        elif error is not None:
            click.echo(f"pybroker: {error}", err=True)
        else:
            click.echo(f"deleted the offset of {topic}-{index}")
    if any(results.values()):
        sys.exit(EXIT_FAILED)
