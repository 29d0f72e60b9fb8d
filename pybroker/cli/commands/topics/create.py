"""`pybroker topics create`: one topic."""

from __future__ import annotations

import click

from pybroker.cli.admin.replica_assignment import parse_assignment
from pybroker.cli.broker_options import broker_options, connected, pairs
from pybroker.cli.name_options import complete_topics, name_option
from pybroker.cli.output import plural, print_json


@click.command(name="create")
@broker_options
@name_option("--topic", "topic", complete_topics, help="Its name.", metavar="TOPIC")
@click.option("--partitions", type=click.IntRange(1), help="How many; without, the broker's num.partitions.")
@click.option("--replication-factor", type=click.IntRange(1), help="Without, default.replication.factor.")
@click.option(
    "--replica-assignment", metavar="ID:ID,ID:ID", help="Brokers of each partition, instead of the two above."
)
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting of the topic.")
@click.option("--if-not-exists", is_flag=True, help="It is no error when the topic is there.")
@click.option("--validate-only", is_flag=True, help="Ask whether it could be made, and make nothing.")
def command(
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
) -> None:
    """Create a topic.

    \b
    pybroker topics create --topic t --partitions 6 --config retention.ms=60000
    """
    from pybroker.client import topics
    from pybroker.client.errors import RequestError
    from pybroker.protocol.errors import ErrorCode

    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--replica-assignment says both --partitions and --replication-factor")
    assignment = parse_assignment(replica_assignment)
    settings = pairs("--config", configs)
    with connected(bootstrap, timeout_ms) as cluster:
        try:
            made = topics.create(
                cluster,
                topic,
                partitions=partitions or topics.DEFAULT,
                replication_factor=replication_factor or topics.DEFAULT,
                assignment=assignment,
                configs=settings,
                validate_only=validate_only,
            )
        except RequestError as error:
            if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            made = None
    if as_json:
        numbers = {"partitions": made.partitions, "replication_factor": made.replication_factor} if made else {}
        print_json({"topic": topic, "created": made is not None and not validate_only, **numbers})
    elif made is None:
        click.echo(f"topic {topic} is there already")
    else:
        did = "could create" if validate_only else "created"
        click.echo(
            f"{did} topic {topic}: {plural(made.partitions, 'partition')}, replication factor {made.replication_factor}"
        )
