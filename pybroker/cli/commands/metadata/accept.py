"""`pybroker metadata accept`: go on with a metadata log that has lost records."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.files.paths import printable

if TYPE_CHECKING:
    from pybroker.metadata.acceptance import Remains


@click.command(name="accept")
@click.argument("log_dirs", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--with-topics", is_flag=True, help="Make topics anew for the partitions that the metadata do not have.")
@click.option("--yes", is_flag=True, help="Do it. Without it the command only says what is missing.")
def command(log_dirs: tuple[Path, ...], with_topics: bool, yes: bool) -> None:
    """Let a broker start that refuses its metadata log because records are missing at the end.

    LOG_DIRS are all directories of log.dirs, and metadata.log.dir. The broker must be stopped. A backup of
    __cluster_metadata-0, where there is one, is better than this.

    Partitions that the metadata do not have are set aside by the next start, and stay on the disk as NAME.ID-stray.
    With --with-topics they become topics again, by what their directories say. The settings of these topics are lost:
    they get retention.ms=-1 and retention.bytes=-1, so that nothing is deleted before you have set them again.

    Exit status: 0, 1 the log dirs cannot be used so, 2 the command line is wrong.
    """
    from pybroker.cli.common import fail
    from pybroker.metadata.acceptance import accept, examine
    from pybroker.metadata.errors import MetadataError
    from pybroker.storage.errors import StorageError
    from pybroker.storage.files.directory_lock import DirectoryLock

    with ExitStack() as stack:
        try:
            for path in log_dirs:
                stack.callback(DirectoryLock(path).release)
            remains = examine(log_dirs)
            _print(remains, with_topics=with_topics)
            if not yes:
                click.echo("nothing was changed: --yes does it")
                return
            end = accept(remains, with_topics=with_topics, now_ms=time.time_ns() // 1_000_000)
        except (StorageError, MetadataError, OSError) as error:
            fail(printable(str(error)))
    click.echo(f"accepted: the metadata end at offset {end.end_offset} in epoch {end.epoch}")


def _print(remains: Remains, *, with_topics: bool) -> None:
    applied, end = remains.applied, remains.end
    if remains.replayed is None:
        click.echo(printable(f"{remains.metadata_dir} has no metadata log; an empty one is begun"))
    was = "nothing says how far it went" if applied is None else f"it was applied up to offset {applied.end_offset}"
    click.echo(f"the metadata log ends at offset {end.end_offset} in epoch {end.epoch}; {was}")
    for each in remains.unknown:
        if each.problem is not None:
            what = f"set aside by the next start: {each.problem}"
        else:
            what = "made anew as a topic" if with_topics else "set aside by the next start"
        click.echo(printable(f"{each.path}: not in the metadata; {what}"))
    if not remains.unknown:
        click.echo("no partition in these log dirs is missing in the metadata")
