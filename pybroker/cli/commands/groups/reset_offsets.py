"""`pybroker groups reset-offsets`: where a group goes on reading. Shows what it would do unless told to do it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pybroker.cli.admin.group_options import group_option, partitions_of
from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.common import fail
from pybroker.cli.name_options import complete_topics
from pybroker.cli.output import Column, is_terminal, plural, print_json, print_table
from pybroker.cli.times import Duration, Time

if TYPE_CHECKING:
    from pybroker.cli.admin.offset_targets import Move

_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", number=True, ids=True),
    Column("committed_offset", "committed", number=True),
    Column("new_offset", "new offset", number=True),
    Column("change", "change", number=True),
    Column("note", "note", prose=True),
]

_TARGETS = [
    click.option("--to-earliest", is_flag=True, help="To the first record that is left."),
    click.option("--to-latest", is_flag=True, help="Behind the last record."),
    click.option("--to-current", is_flag=True, help="To where it is."),
    click.option("--to-offset", type=click.IntRange(0), metavar="OFFSET", help="To this offset."),
    click.option("--to-datetime", type=Time(), metavar="TIME", help="To the first record of that time or later."),
    click.option("--by-duration", type=Duration(), metavar="DURATION", help="The same, so long ago: P1DT2H or 1d2h."),
    click.option(
        "--from-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="To what --export printed."
    ),
    click.option("--shift-by", type=int, metavar="N", help="N records on, or back if negative."),
]


def _target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_TARGETS):
        command = option(command)
    return command


@click.command(name="reset-offsets")
@broker_options
@group_option
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="Of these partitions; may be repeated.",
    shell_complete=complete_topics,
)
@click.option("--all-topics", is_flag=True, help="Of all topics that the group has committed offsets of.")
@_target_options
@click.option("--dry-run", is_flag=True, help="Only show what would change: the default.")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--export", is_flag=True, help="Print lines of topic,partition,new offset and nothing else.")
def command(
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    **targets: Any,
) -> None:
    """Move the offsets that a group goes on from. The group must have no members.

    \b
    pybroker groups reset-offsets --group g --topic t --to-datetime 2026-01-31
    pybroker groups reset-offsets --group g --all-topics --shift-by -100 --execute

    Nothing is changed without --execute. An offset below the first record or behind the last is brought to that end.
    Times are UTC unless they say otherwise.
    """
    from pybroker.cli.admin.offset_targets import moves, moves_to, read_file, target_of
    from pybroker.client import groups, offsets

    target = target_of(targets)
    from_file = read_file(targets["from_file"]) if targets["from_file"] is not None else None
    if from_file is not None and (topics or all_topics):
        raise click.UsageError("--from-file says which partitions: without --topic and --all-topics")
    if from_file is None and bool(topics) == all_topics:
        raise click.UsageError("say which partitions: either --topic or --all-topics")
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute contradict each other")
    with connected(bootstrap, timeout_ms) as cluster:
        committed = groups.committed(cluster, group)
        _refuse_active(cluster, group)
        wanted = offsets.with_leader(cluster, sorted(committed)) if all_topics else partitions_of(cluster, topics)
        if from_file is None and not wanted:
            fail(f"group {group} has committed no offsets of topics that are there: name its topics with --topic")
        if from_file is not None:
            found = moves_to(cluster, from_file, committed)
        else:
            found = moves(cluster, target, wanted, committed)
        if execute:
            groups.commit(cluster, group, {each.partition: each.new_offset for each in found})
    if export:
        for each in found:
            click.echo(f"{each.partition[0]},{each.partition[1]},{each.new_offset}")
    else:
        _show(found, group, execute, as_json)


def _refuse_active(cluster: Any, group: str) -> None:
    """A group that is not there yet may get offsets to begin with."""
    from pybroker.client import groups
    from pybroker.client.errors import RequestError
    from pybroker.protocol.errors import ErrorCode

    try:
        described = groups.describe(cluster, group)
    except RequestError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if not described.is_idle:
        count = plural(len(described.members), "member")
        fail(f"group {group} is {described.state} with {count}: stop them first, they would go on from where they are")


def _show(found: list[Move], group: str, executed: bool, as_json: bool) -> None:
    rows = [
        {
            "group": group,
            "topic": each.partition[0],
            "partition": each.partition[1],
            "committed_offset": each.old_offset,
            "new_offset": each.new_offset,
            "change": None if each.old_offset is None else each.new_offset - each.old_offset,
            "note": each.note,
            "executed": executed,
        }
        for each in found
    ]
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(_COLUMNS, rows)
    if not executed:
        click.echo("nothing was changed: --execute does it", err=True)
    elif is_terminal():
        click.echo(f"{plural(len(rows), 'offset')} of group {group} changed")
