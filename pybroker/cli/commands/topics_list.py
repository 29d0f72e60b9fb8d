"""`pybroker topics list`: names."""

from __future__ import annotations

import click

from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.output import print_json
from pybroker.cli.topic_names import exclude_internal_option, matching


@click.command(name="list")
@broker_options
@click.option("--topic", "pattern", metavar="REGEX", help="Only topics whose whole name this matches.")
@exclude_internal_option
def command(bootstrap: str, timeout_ms: int, as_json: bool, pattern: str | None, exclude_internal: bool) -> None:
    """Print the names of all topics, one a line."""
    from pybroker.client import topics

    with connected(bootstrap, timeout_ms) as cluster:
        found = matching(topics.describe(cluster), (pattern,) if pattern else (), exclude_internal)
    for topic in found:
        if as_json:
            print_json({"topic": topic.name, "internal": topic.is_internal, "partitions": len(topic.partitions)})
        else:
            click.echo(topic.name)
