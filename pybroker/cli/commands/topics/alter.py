"""`pybroker topics alter`: more partitions."""

from __future__ import annotations

import click

from pybroker.cli.admin.replica_assignment import parse_assignment
from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.name_options import complete_topics, names_option
from pybroker.cli.output import plural, print_json


@click.command(name="alter")
@broker_options
@names_option("--topic", "names", complete_topics, help="Which; may be repeated.", metavar="TOPIC", required=True)
@click.option("--partitions", required=True, type=click.IntRange(1), help="How many there shall be.")
@click.option("--replica-assignment", metavar="ID:ID,ID:ID", help="Brokers of each partition, from the first one on.")
@click.option("--if-exists", is_flag=True, help="It is no error when a topic is not there.")
def command(
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
    names: tuple[str, ...],
    partitions: int,
    replica_assignment: str | None,
    if_exists: bool,
) -> None:
    """Give topics more partitions.

    There is no way back, and where records have keys, new ones of a key may go to another partition than the old. For
    settings see `pybroker configs alter`.
    """
    from pybroker.client import topics
    from pybroker.client.errors import RequestError
    from pybroker.protocol.errors import ErrorCode

    assignment = parse_assignment(replica_assignment)
    for name in names:
        altered = True
        with connected(bootstrap, timeout_ms) as cluster:
            try:
                (topic,) = topics.describe(cluster, [name])
                topics.add_partitions(cluster, name, partitions, assignment[len(topic.partitions) :])
            except RequestError as error:
                if not (if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise
                altered = False
        if as_json:
            print_json({"topic": name, "altered": altered, **({"partitions": partitions} if altered else {})})
        else:
            click.echo(f"topic {name}: {plural(partitions, 'partition')}" if altered else f"there is no topic {name}")
