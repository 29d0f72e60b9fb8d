"""`pybroker log repair`: save what is intact into a new directory."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybroker.cli.files.paths import open_paths

if TYPE_CHECKING:
    from pybroker.storage.offline.layout import Target

_EXIT_DROPPED = 1


@click.command(name="repair")
@click.argument("source", type=click.Path())
@click.option("--output", type=click.Path(path_type=Path), help="The directory to make; it must not be there yet.")
@click.option("--in-place", is_flag=True, help="Put the result where SOURCE is, and move SOURCE aside.")
@click.option(
    "--metadata",
    type=click.Choice(("cut", "skip")),
    default="cut",
    show_default=True,
    help="The metadata log may have no hole: end it before damage, or fill what is lost by records without effect.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(source: str, output: Path | None, in_place: bool, metadata: str, as_json: bool) -> None:
    """Save all intact batches of SOURCE into a new directory, which Apache Kafka and pybroker open.

    SOURCE is a log dir, a partition's directory or a .log file, and is only read. For a log dir the output is a log
    dir; otherwise it is a directory with the partition's directory in it. OUTPUT.repair-report.txt and .json beside it
    tell which batches were dropped and corrected. With --in-place the original ends up beside its log dir, named
    .before-repair-TIME.

    A damaged __cluster_metadata-0 is kept up to the damage, or from a snapshot behind it on. With --metadata skip it
    goes on behind the damage, but for records that cannot be replayed without those that are lost.

    Exit status: 0 no batch was dropped, 1 some were, 2 SOURCE or the options cannot be used.
    """
    from pybroker.metadata.keeping import Keeper
    from pybroker.metadata.offline import topic_ids
    from pybroker.storage.errors import StorageError
    from pybroker.storage.offline.repairs.repair_dir import repair, replace

    if (output is None) == (not in_place):
        raise click.UsageError("give either --output DIR or --in-place")
    (target,) = open_paths([source])
    try:
        with ExitStack() as stack:
            if in_place:
                output = _place_beside(target, stack)
            assert output is not None
            result = repair(target, output, topic_ids, Keeper if metadata == "skip" else None)
            if in_place:
                aside = replace(target, output, result)
                result.notes.append(f"the original is {aside}")
    except StorageError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"{error.filename or source}: {error.strerror or error}") from None
    click.echo(result.as_json() if as_json else result.as_text(), nl=False)
    sys.exit(_EXIT_DROPPED if result.dropped else 0)


def _place_beside(target: Target, stack: ExitStack) -> Path:
    """A directory of the same file system to repair into. No broker may hold the log dir meanwhile."""
    from pybroker.storage.errors import StorageError
    from pybroker.storage.files.directory_lock import DirectoryLock
    from pybroker.storage.offline.layout import LogDirFiles

    if isinstance(target, Path):
        raise StorageError(f"{target}: --in-place is for directories")
    source = target.path.resolve()
    log_dir = source if isinstance(target, LogDirFiles) else source.parent
    if log_dir.stat().st_dev != log_dir.parent.stat().st_dev:
        raise StorageError(f"{log_dir} is the root of a file system, so nothing can be put beside it: give --output")
    lock = DirectoryLock(log_dir)
    stack.callback(lock.release)
    return log_dir.with_name(f"{log_dir.name}.repaired")
