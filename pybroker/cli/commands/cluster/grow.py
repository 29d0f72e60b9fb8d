"""`pybroker cluster grow`: make the metadata of a stopped single broker those of Apache Kafka's controllers."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.common import fail
from pybroker.cli.files.finding_lines import print_findings
from pybroker.cli.profile.profile_options import config_options, load_config

if TYPE_CHECKING:
    from pybroker.cluster.growing import Grown

_EXIT_FINDINGS = 3


@click.command(name="grow")
@config_options
@click.option(
    "--controller",
    "controllers",
    multiple=True,
    required=True,
    metavar="ID@HOST:PORT",
    help="A controller of the cluster to be, as others reach it; may be repeated.",
)
@click.option("--check", is_flag=True, help="Look, and change nothing.")
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), help="Where all that is new goes: a new directory."
)
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(
    properties: str | None,
    overrides: tuple[str, ...],
    controllers: tuple[str, ...],
    check: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Let a broker that ran alone become the first one of a cluster led by Apache Kafka's controllers.

    PROPERTIES and --override are what `pybroker serve` was given. Writes a log dir for each controller, which has the
    topics, settings and ids that the broker had, and the server.properties of every node. The broker's own log dirs
    keep their records; what leaves them is the metadata log, of which --output keeps a copy. With that back in its
    place the broker runs alone again, as long as it has not been started as a part of the cluster.

    Exit status: 0 done, or nothing is in the way; 3 something is; 1 it failed, and the broker is as it was.
    """
    from pybroker.cluster.controller_dirs import ControllerNode
    from pybroker.cluster.errors import ClusterError
    from pybroker.cluster.growing import examine_growth, grow
    from pybroker.doctor.finding import Severity
    from pybroker.metadata.errors import MetadataError
    from pybroker.storage.errors import StorageError

    if check == (output is not None):
        raise click.UsageError("give either --check or --output DIR")
    config = load_config(properties, overrides)
    try:
        nodes = [ControllerNode.parse(each) for each in controllers]
        findings = examine_growth(config, nodes)
        errors = [each for each in findings if each.severity is Severity.ERROR]
        grown = None
        if output is not None and not errors:
            grown = grow(config, nodes, output, time.time_ns() // 1_000_000)
    except (ClusterError, MetadataError, StorageError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if as_json:
        rows = [each.as_dict() for each in findings]
        click.echo(json.dumps({"findings": rows, "done": grown is not None, "files": _files(grown)}, indent=2))
    else:
        if findings or grown is None:
            print_findings(findings)
        if grown is not None:
            _print(grown)
    sys.exit(_EXIT_FINDINGS if errors or (check and any(each.severity.is_fault for each in findings)) else 0)


def _files(grown: Grown | None) -> dict[str, str]:
    if grown is None:
        return {}
    return {
        **{f"controller-{node_id}": str(path) for node_id, path in grown.controllers.items()},
        "broker": str(grown.broker),
        "another-broker": str(grown.another),
        "metadata-log-of-before": str(grown.kept),
    }


def _print(grown: Grown) -> None:
    click.echo(f"cluster {grown.cluster_id}; what comes next:")
    for node_id, path in grown.controllers.items():
        click.echo(f"  controller {node_id}: kafka-server-start.sh {path}")
    click.echo(f"  this broker: pybroker serve {grown.broker}")
    click.echo(f"  every other broker: fill in and start {grown.another}")
    click.echo("A directory may move to another machine first: then change log.dirs in its server.properties.")
    click.echo(f"The metadata log of before is kept in {grown.kept}")
