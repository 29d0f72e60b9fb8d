"""`pybroker log accept-loss`: let a partition go on without records that are lost."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(name="accept-loss")
@click.argument("log_dir", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--partition", required=True, metavar="TOPIC-PARTITION", help="Whose loss is accepted.")
@click.option("--look", is_flag=True, help="Only say what would be accepted.")
@click.option("--json", "as_json", is_flag=True, help="Print what was accepted as JSON.")
def command(log_dir: Path, partition: str, look: bool, as_json: bool) -> None:
    """Accept that records of a partition in LOG_DIR are lost, and say which.

    A broker that misses records which it had keeps the partition offline, so that nobody takes what is left for all
    there was. Bring the files back from a backup if you can. If not, stop the broker and run this command: the next
    start serves what is left. The log goes on at the offset where it ended before, so no offset is given out twice, and
    consumers pass over the gap.

    Nothing is deleted: bytes that are no whole batches are kept in files beside the segment.

    Exit status: 0 the loss was accepted, or shown with --look; 2 nothing is lost, or LOG_DIR is in use.
    """
    from pybroker.storage.errors import StorageError
    from pybroker.storage.offline.checks.losses import accept_loss

    topic, _, index = partition.rpartition("-")
    if not topic or not index.isdecimal():
        raise click.UsageError(f"--partition {partition}: expected TOPIC-PARTITION, such as orders-0")
    try:
        accepted = accept_loss(log_dir, (topic, int(index)), look=look)
    except StorageError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"{error.filename or log_dir}: {error.strerror or error}") from None
    if as_json:
        losses = [
            {"path": str(each.path), "what": each.what, "from": each.first_offset, "to": each.end_offset - 1}
            for each in accepted.losses
        ]
        click.echo(json.dumps({"accepted": not look, "losses": losses, "next_offset": accepted.next_offset}))
        return
    for loss in accepted.losses:
        click.echo(str(loss))
    for note in accepted.notes:
        click.echo(note)
    verb = "would go on" if look else "goes on"
    click.echo(f"{partition} {verb} at offset {accepted.next_offset}")
