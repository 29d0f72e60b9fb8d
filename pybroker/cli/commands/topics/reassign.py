"""`pybroker topics reassign`: more or fewer replicas for partitions that are there."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.common import fail
from pybroker.cli.name_options import complete_topics
from pybroker.cli.output import plural

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster
    from pybroker.client.reassignments import Plan

_POLL_SECONDS = 0.2


@click.command(name="reassign")
@broker_options
@click.option(
    "--topic",
    "names",
    multiple=True,
    metavar="NAME",
    help="Which; may be repeated. All without.",
    shell_complete=complete_topics,
)
@click.option("--replication-factor", required=True, type=click.IntRange(1), help="How many replicas there shall be.")
@click.option("--broker-list", metavar="ID,ID", help="Brokers that may have them. All without.")
@click.option("--execute", is_flag=True, help="Do it, and return when all new replicas are in sync.")
def command(
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
    names: tuple[str, ...],
    replication_factor: int,
    broker_list: str | None,
    execute: bool,
) -> None:
    """Give partitions another number of replicas, internal topics included.

    Replicas stay where they are as far as they may. Preferred leaders are spread, and kafka-leader-election.sh has them
    lead. Without --execute it prints what kafka-reassign-partitions.sh takes, which can throttle.
    """
    from pybroker.client import reassignments, topics

    with connected(bootstrap, timeout_ms) as cluster:
        try:
            racks = _allowed(reassignments.racks_of(cluster), broker_list)
            wanted = reassignments.plan(topics.describe(cluster, names or None), racks, replication_factor)
        except ValueError as error:
            fail(str(error))
        if execute:
            _execute(cluster, wanted)
    if as_json or not execute:
        rows = [{"topic": name, "partition": index, "replicas": wanted[name, index]} for name, index in sorted(wanted)]
        click.echo(json.dumps({"version": 1, "partitions": rows}))
    else:
        click.echo(f"{plural(len(wanted), 'partition')} reassigned")


def _allowed(racks: dict[int, str | None], broker_list: str | None) -> dict[int, str | None]:
    """The brokers of --broker-list. ValueError when one of them is not there."""
    if broker_list is None:
        return racks
    try:
        chosen = [int(each) for each in broker_list.split(",")]
    except ValueError:
        raise click.UsageError(f"--broker-list {broker_list!r}: accepted are ids of brokers, ',' between") from None
    for each in chosen:
        if each not in racks:
            raise ValueError(f"broker {each} is not there")
    return {each: racks[each] for each in chosen}


def _execute(cluster: Cluster, wanted: Plan) -> None:
    from pybroker.client import reassignments

    if wanted:
        reassignments.reassign(cluster, wanted)
    while not reassignments.under_way(cluster).isdisjoint(wanted):
        time.sleep(_POLL_SECONDS)
