"""`pybroker log stray delete`: remove for good what was set aside."""

from __future__ import annotations

from pathlib import Path

import click

from pybroker.cli.files.paths import printable


@click.command(name="delete")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(paths: tuple[Path, ...], yes: bool) -> None:
    """Remove the directories PATHS, which were set aside, with all records in them. The broker must be stopped.

    Each is named with its size, and asked about, unless --yes is given.

    Exit status: 0, 1 one of them was not removed, 2 a PATH is no directory that was set aside.
    """
    from pybroker.cli.files.strays import locked_dirs
    from pybroker.storage.dirs.strays import delete, read
    from pybroker.storage.errors import StorageError

    is_kept = False
    with locked_dirs(paths):
        try:
            strays = [read(path) for path in paths]
        except (StorageError, OSError) as error:
            raise click.UsageError(str(error)) from None
        for stray in strays:
            question = (
                f"{stray.path} holds {stray.size_bytes:,} bytes of {stray.topic}-{stray.index}. Remove it for good?"
            )
            if not (yes or click.confirm(printable(question))):
                is_kept = True
                continue
            try:
                delete(stray)
            except OSError as error:
                click.echo(printable(f"{stray.path}: not removed whole: {error}"), err=True)
                is_kept = True
            else:
                click.echo(printable(f"{stray.path} is removed"))
    if is_kept:
        raise SystemExit(1)
