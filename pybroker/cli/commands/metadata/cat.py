"""`pybroker metadata cat`: what is at a path."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pybroker.cli.common import fail
from pybroker.cli.metadata.metadata_source import opened, source_options
from pybroker.cli.output import print_json


@click.command(name="cat")
@source_options
@click.argument("path")
def command(bootstrap: str, snapshot: Path | None, as_json: bool, path: str) -> None:
    """Print what is at PATH: a setting as it is, all else as JSON.

    \b
    pybroker metadata cat /topics/orders
    pybroker metadata cat /configs/topics/orders/retention.ms
    """
    from pybroker.cli.metadata.metadata_tree import find

    with opened(bootstrap, snapshot) as root:
        node = find(root, path)
        if node.content is None:
            fail(f"{path} holds other paths: pybroker metadata ls {path}")
        content = node.content()
    if as_json:
        print_json(content)
    else:
        click.echo(content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False))
