"""`pybroker cluster down`: end a cluster in order."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pybroker.cli.cluster_options import directory_option
from pybroker.cli.common import EXIT_FAILED, fail


@click.command(name="down")
@directory_option
@click.option("--delete", is_flag=True, help="Do not stop in order but at once, and remove the cluster with its data.")
def command(directory: Path, delete: bool) -> None:
    """Stop all nodes: brokers first, then controllers. Their data stays, and `up` starts them again.

    Exit status: 0 when all have ended in order; 1 when one took too long and was killed, or something else failed.
    """
    from pybroker.cluster.errors import ClusterError
    from pybroker.cluster.local_cluster import LocalCluster

    try:
        cluster = LocalCluster.open(directory)
        if delete:
            cluster.delete()
            return
        late = cluster.down()
    except ClusterError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    for node_id in late:
        click.echo(
            f"pybroker: node {node_id} took too long and was killed; {cluster.output_path(node_id)} may say why",
            err=True,
        )
    sys.exit(EXIT_FAILED if late else 0)
