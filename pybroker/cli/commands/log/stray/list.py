"""`pybroker log stray list`: what was set aside in log dirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.files.paths import printable

if TYPE_CHECKING:
    from pybroker.storage.dirs.strays import Stray


@click.command(name="list")
@click.argument("log_dirs", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per directory and line.")
def command(log_dirs: tuple[Path, ...], as_json: bool) -> None:
    """List the partitions that were set aside in LOG_DIRS, with their topic ids and sizes.

    Exit status: 0, 2 a log dir cannot be read.
    """
    from pybroker.protocol.uuids import uuid_to_text
    from pybroker.storage.dirs.strays import find

    try:
        found = [stray for log_dir in log_dirs for stray in find(log_dir)]
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from None
    for stray in found:
        topic_id = None if stray.topic_id is None else uuid_to_text(stray.topic_id)
        click.echo(json.dumps(_as_dict(stray, topic_id)) if as_json else _line(stray, topic_id))
    if not found and not as_json:
        click.echo("nothing was set aside")


def _as_dict(stray: Stray, topic_id: str | None) -> dict[str, object]:
    return {
        "path": str(stray.path),
        "topic": stray.topic,
        "partition": stray.index,
        "topic_id": topic_id,
        "bytes": stray.size_bytes,
        "problem": stray.problem,
    }


def _line(stray: Stray, topic_id: str | None) -> str:
    text = f"{stray.path}: {stray.topic}-{stray.index}, topic id {topic_id or 'unknown'}, {stray.size_bytes:,} bytes"
    return printable(text if stray.problem is None else f"{text}; {stray.problem}")
