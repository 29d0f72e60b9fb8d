"""`pybroker log stray restore`: take back what was set aside."""

from __future__ import annotations

from pathlib import Path

import click

from pybroker.cli.files.paths import printable


@click.command(name="restore")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--metadata",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The log dir with __cluster_metadata-0; by default the one that PATH is in, if it has one.",
)
@click.option("--yes", is_flag=True, help="Do it. Without it the command only says what it would do.")
def command(paths: tuple[Path, ...], metadata: Path | None, yes: bool) -> None:
    """Give the directories PATHS their partitions' names again. The broker must be stopped.

    Each goes back to the topic whose id it has, if that topic exists in the metadata. Where no metadata log is at hand,
    as with a broker whose controllers are elsewhere, the next start compares the ids, and sets aside again what is of
    no topic.

    Exit status: 0, 1 one of them could not be taken back, 2 the command line is wrong.
    """
    from pybroker.cli.files.strays import locked_dirs, topics_beside
    from pybroker.metadata.errors import MetadataError
    from pybroker.storage.dirs.strays import read, restore, target_of
    from pybroker.storage.errors import StorageError

    is_refused = False
    with locked_dirs(paths):
        for path in paths:
            try:
                stray = read(path)
                topics = topics_beside(path.resolve().parent if metadata is None else metadata)
                target = restore(stray, topics) if yes else target_of(stray, topics)
            except (StorageError, MetadataError, OSError) as error:
                click.echo(printable(f"{path}: not taken back: {error}"), err=True)
                is_refused = True
                continue
            what = "is" if yes else "would be"
            where = "" if topics is not None else "; the next start compares its topic id with the metadata"
            click.echo(printable(f"{path} {what} {target} now{where}"))
    if not yes:
        click.echo("nothing was changed: --yes does it")
    if is_refused:
        raise SystemExit(1)
