"""`pybroker metadata ls`: what there is."""

from __future__ import annotations

from pathlib import Path

import click

from pybroker.cli.metadata.metadata_source import opened, source_options
from pybroker.cli.output import print_json


@click.command(name="ls")
@source_options
@click.option("--recursive", "-R", is_flag=True, help="All below it, as whole paths.")
@click.argument("path", default="/")
def command(bootstrap: str, snapshot: Path | None, as_json: bool, recursive: bool, path: str) -> None:
    """List what is below PATH; a name with more below it ends with a slash.

    \b
    pybroker metadata ls /topics
    pybroker metadata ls -R /configs --snapshot /var/lib/kafka/data
    """
    from pybroker.cli.metadata.metadata_tree import find, parts, walk

    top = "/" + "/".join(parts(path))
    with opened(bootstrap, snapshot) as root:
        node = find(root, path)
        if recursive:
            found = list(walk(node, top))
        else:
            found = [
                (f"{top.rstrip('/')}/{name}", child)
                for name, child in (node.children() if node.children else {}).items()
            ]
        if node.children is None:
            found = [(top, node)]
    for child_path, child in found:
        is_directory = child.children is not None
        if as_json:
            print_json({"path": child_path, "directory": is_directory})
        else:
            name = child_path if recursive else child_path.rpartition("/")[2]
            click.echo(name + ("/" if is_directory else ""))
