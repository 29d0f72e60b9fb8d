"""`pybroker info`: a cluster at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.output import Column, print_json, print_table

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster

_COLUMNS = [
    Column("id", "broker", number=True, ids=True),
    Column("address", "address"),
    Column("rack", "rack"),
    Column("controller", "controller"),
    Column("leads", "leads", number=True),
    Column("replicas", "replicas", number=True),
]


@click.command(name="info")
@broker_options
def command(bootstrap: str, timeout_ms: int, as_json: bool) -> None:
    """Show a cluster at a glance: brokers, topics, groups, and partitions that are not as they should be.

    Exit status: 0, 1 when no broker answers. With --json one object.
    """
    with connected(bootstrap, timeout_ms) as cluster:
        found = _overview(cluster)
    if as_json:
        print_json(found)
        return
    for title in ("cluster", "topics", "partitions", "offline", "under_replicated", "groups"):
        click.echo(f"{title.replace('_', ' ') + ':':18}{found[title]}")
    click.echo()
    print_table(_COLUMNS, found["brokers"])


def _overview(cluster: Cluster) -> dict[str, Any]:
    from pybroker.client import groups, topics

    metadata = cluster.metadata()
    every = topics.describe(cluster)
    partitions = [partition for topic in every for partition in topic.partitions]
    brokers = [
        {
            "id": each.node_id,
            "address": f"{each.host}:{each.port}",
            "rack": each.rack,
            "controller": each.node_id == metadata.controller_id,
            "leads": sum(partition.leader == each.node_id for partition in partitions),
            "replicas": sum(each.node_id in partition.replicas for partition in partitions),
        }
        for each in sorted(metadata.brokers, key=lambda each: each.node_id)
    ]
    return {
        "cluster": metadata.cluster_id,
        "topics": len(every),
        "partitions": len(partitions),
        "offline": sum(partition.leader == topics.NO_LEADER for partition in partitions),
        "under_replicated": sum(partition.is_under_replicated for partition in partitions),
        "groups": len(groups.list_groups(cluster)),
        "brokers": brokers,
    }
