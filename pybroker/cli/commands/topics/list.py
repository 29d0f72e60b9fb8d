"""`pybroker topics list`: names, and at a terminal counts."""

from __future__ import annotations

import click

from pybroker.cli.admin.topic_names import exclude_internal_option, matching
from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.name_options import complete_topics
from pybroker.cli.output import Column, is_terminal, print_json, print_table

_COLUMNS = [
    Column("topic", "topic"),
    Column("partitions", "partitions", number=True),
    Column("replicas", "replicas", number=True),
    Column("internal", "internal"),
]


@click.command(name="list")
@broker_options
@click.option(
    "--topic",
    "pattern",
    metavar="REGEX",
    help="Only topics whose whole name this matches.",
    shell_complete=complete_topics,
)
@exclude_internal_option
def command(bootstrap: str, timeout_ms: int, as_json: bool, pattern: str | None, exclude_internal: bool) -> None:
    """List all topics: at a terminal with their counts, in a pipe the names alone, one a line."""
    from pybroker.client import topics

    with connected(bootstrap, timeout_ms) as cluster:
        found = matching(topics.describe(cluster), (pattern,) if pattern else (), exclude_internal)
    rows = [
        {
            "topic": topic.name,
            "internal": topic.is_internal,
            "partitions": len(topic.partitions),
            "replicas": topic.replication_factor,
        }
        for topic in found
    ]
    if as_json:
        for row in rows:
            print_json(row)
    elif is_terminal():
        print_table(_COLUMNS, rows)
    else:
        for row in rows:
            click.echo(row["topic"])
