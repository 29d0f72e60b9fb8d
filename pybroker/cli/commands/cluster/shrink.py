"""`pybroker cluster shrink`: let the last broker of a cluster go on alone."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from pybroker.cli.common import fail
from pybroker.cli.files.finding_lines import print_findings
from pybroker.cli.profile.profile_options import config_options, load_config

_EXIT_FINDINGS = 3


@click.command(name="shrink")
@config_options
@click.option(
    "--controller-dir",
    "controller_dirs",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The log dir of a stopped controller; more than half of them have to be given.",
)
@click.option("--check", is_flag=True, help="Look, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
def command(
    properties: str | None,
    overrides: tuple[str, ...],
    controller_dirs: tuple[Path, ...],
    check: bool,
    as_json: bool,
) -> None:
    """Give the broker that has all replicas the metadata of the cluster's controllers, so that it can run alone.

    PROPERTIES and --override are what `pybroker serve` is to be given then. All nodes are stopped; the controllers'
    log dirs stay as they are.

    Exit status: 0 done, or nothing is in the way; 3 something is; 1 it failed, and nothing was changed.
    """
    from pybroker.cluster.errors import ClusterError
    from pybroker.cluster.shrinking import examine_shrinking, shrink
    from pybroker.doctor.finding import Severity
    from pybroker.metadata.errors import MetadataError
    from pybroker.storage.errors import StorageError

    config = load_config(properties, overrides)
    try:
        findings = examine_shrinking(config, controller_dirs)
        errors = [each for each in findings if each.severity is Severity.ERROR]
        is_done = not check and not errors
        if is_done:
            shrink(config, controller_dirs, time.time_ns() // 1_000_000)
    except (ClusterError, MetadataError, StorageError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if as_json:
        click.echo(json.dumps({"findings": [each.as_dict() for each in findings], "done": is_done}, indent=2))
    elif findings or not is_done:
        print_findings(findings)
    else:
        click.echo(f"broker {config.node_id} has the metadata of the cluster, and can be started alone")
    sys.exit(_EXIT_FINDINGS if errors else 0)
