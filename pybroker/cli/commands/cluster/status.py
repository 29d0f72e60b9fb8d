"""`pybroker cluster status`: which nodes run, whether they serve, and who leads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pybroker.cli.cluster_options import directory_option
from pybroker.cli.common import fail
from pybroker.cli.output import Column, print_json, print_table

if TYPE_CHECKING:
    from pybroker.cluster.local_cluster import LocalCluster

_EXIT_NOT_SERVING = 3
_COLUMNS = (
    Column("node_id", "Node", number=True, ids=True),
    Column("kind", "Kind"),
    Column("state", "State"),
    Column("address", "Address"),
    Column("rack", "Rack"),
    Column("process_id", "Process", ids=True),
    Column("log_dir", "Log dir"),
)


@click.command(name="status")
@directory_option
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(directory: Path, as_json: bool) -> None:
    """Show the nodes of a cluster. They all serve when each tells clients of all of them.

    Exit status: 0 when all brokers serve, 3 when not, 1 when there is no cluster.
    """
    from pybroker.cluster.errors import ClusterError
    from pybroker.cluster.local_cluster import LocalCluster
    from pybroker.cluster.readiness import quorum_state, what_is_missing

    try:
        cluster = LocalCluster.open(directory)
    except ClusterError as error:
        fail(str(error))
    missing = what_is_missing(cluster.layout)
    rows = _rows(cluster)
    quorum = quorum_state(cluster.layout)
    if as_json:
        print_json(
            {
                "cluster_id": cluster.layout.cluster_id,
                "bootstrap_servers": cluster.layout.bootstrap,
                "ready": missing is None,
                "missing": missing,
                "controller_id": quorum.leader_id if quorum else None,
                "controller_epoch": quorum.leader_epoch if quorum else None,
                "metadata_offset": quorum.high_watermark if quorum else None,
                "nodes": rows,
            }
        )
    else:
        print_table(_COLUMNS, rows)
        if quorum is None:
            click.echo("no controller leads the quorum")
        else:
            click.echo(f"controller {quorum.leader_id} leads in epoch {quorum.leader_epoch}")
        click.echo("all brokers serve" if missing is None else f"not ready: {missing}")
        click.echo(f"bootstrap servers: {cluster.layout.bootstrap}")
    sys.exit(0 if missing is None else _EXIT_NOT_SERVING)


def _rows(cluster: LocalCluster) -> list[dict[str, Any]]:
    return [
        {
            "node_id": node.node_id,
            "kind": str(node.kind),
            "state": cluster.state(node.node_id),
            "address": node.address,
            "rack": node.rack,
            "process_id": cluster.process_id(node.node_id),
            "log_dir": str(cluster.log_dir(node.node_id)),
        }
        for node in cluster.layout.nodes
    ]
