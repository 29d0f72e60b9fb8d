"""Where a local cluster is: the option that all commands of `pybroker cluster` have."""

from __future__ import annotations

from pathlib import Path

import click

DEFAULT_DIRECTORY = "pybroker-cluster"

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="The directory that holds the cluster.",
)
