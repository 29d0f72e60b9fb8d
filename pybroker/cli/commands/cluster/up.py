"""`pybroker cluster up`: make a cluster, or start one again, and wait until it serves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from pybroker.cli.cluster_options import directory_option
from pybroker.cli.common import EXIT_INTERRUPTED, fail

if TYPE_CHECKING:
    from pybroker.cluster.local_cluster import LocalCluster

_OF_A_NEW_CLUSTER = ("brokers", "jvm_brokers", "controllers", "racks", "overrides", "namespaces")


@click.command(name="up")
@directory_option
@click.option("--brokers", type=click.IntRange(0), default=3, show_default=True, help="How many brokers of pybroker.")
@click.option(
    "--jvm-brokers", type=click.IntRange(0), default=0, show_default=True, help="How many brokers of Apache Kafka."
)
@click.option("--controllers", type=click.IntRange(1), default=1, show_default=True, help="How many controllers.")
@click.option("--racks", metavar="RACK,RACK", help="Racks that brokers are put into in turn; none without.")
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting for every node of a new cluster."
)
@click.option(
    "--namespaces",
    is_flag=True,
    help="Each node in a network namespace of its own, which takes root. They can be cut off.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=float,
    default=120.0,
    show_default=True,
    help="Seconds to wait until it serves.",
)
@click.pass_context
def command(
    context: click.Context,
    directory: Path,
    brokers: int,
    jvm_brokers: int,
    controllers: int,
    racks: str | None,
    overrides: tuple[str, ...],
    namespaces: bool,
    timeout_seconds: float,
) -> None:
    """Start a cluster and return when every broker is unfenced and serves clients.

    Makes a new one unless the directory holds one already: that one is started again, with its data.

    Exit status: 0 when it serves; 1 when it does not, and then what was started has been ended.
    """
    from pybroker.cluster.errors import ClusterError
    from pybroker.cluster.layout import ClusterFile
    from pybroker.cluster.local_cluster import LocalCluster

    settings = dict(_pair(each) for each in overrides)
    try:
        if ClusterFile(directory).exists():
            _refuse_options_of_new(context, directory)
            cluster = LocalCluster.open(directory)
        else:
            cluster = LocalCluster.make(
                directory,
                brokers=brokers,
                jvm_brokers=jvm_brokers,
                controllers=controllers,
                overrides=settings,
                namespaces=namespaces,
                racks=_racks(racks),
            )
        cluster.up(timeout_seconds)
    except ClusterError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    _print(cluster)


def _racks(text: str | None) -> list[str]:
    racks = [] if text is None else [each.strip() for each in text.split(",")]
    if not all(racks):
        fail(f"--racks {text}: accepted are names, ',' between")
    return racks


def _pair(override: str) -> tuple[str, str]:
    key, separator, value = override.partition("=")
    if not separator or not key.strip():
        fail(f"--override {override}: accepted is KEY=VALUE")
    return key.strip(), value.strip()


def _refuse_options_of_new(context: click.Context, directory: Path) -> None:
    given = [
        "--" + name.removesuffix("s" if name == "overrides" else "").replace("_", "-")
        for name in _OF_A_NEW_CLUSTER
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        fail(
            f"{directory} holds a cluster already, so {', '.join(given)} cannot be given: --dir names another directory"
        )


def _print(cluster: LocalCluster) -> None:
    for node in cluster.layout.nodes:
        kind = f"{node.kind} {node.node_id}"
        rack = "" if node.rack is None else f"  rack {node.rack}"
        click.echo(f"{kind:16}{node.address:22}process {cluster.process_id(node.node_id)}{rack}")
    click.echo(f"logs of the nodes: {cluster.directory}/node-*/output.log")
    click.echo(f"bootstrap servers: {cluster.layout.bootstrap}")
