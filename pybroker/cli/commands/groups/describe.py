"""`pybroker groups describe`: how far each group has come, and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pybroker.cli.admin.group_options import all_groups_option, check_names, groups_option, named_groups
from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.output import Column, is_terminal, plural, print_heading, print_json, print_table

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster
    from pybroker.client.groups import Group

_COLUMNS = [
    Column("group", "group"),
    Column("topic", "topic"),
    Column("partition", "partition", number=True, ids=True),
    Column("committed_offset", "committed", number=True),
    Column("end_offset", "end offset", number=True),
    Column("lag", "lag", number=True),
    Column("client_id", "client"),
    Column("host", "host"),
]


@click.command(name="describe")
@broker_options
@groups_option
@all_groups_option
def command(bootstrap: str, timeout_ms: int, as_json: bool, names: tuple[str, ...], all_groups: bool) -> None:
    """Show committed offsets, and how far behind they are.

    Lists each partition that a group has committed an offset of, or that a member reads.

    With --json one object per group, partitions inside; in a pipe one line per partition.
    """
    from pybroker.client import groups

    check_names(names, all_groups)
    rows: list[Mapping[str, Any]] = []
    with connected(bootstrap, timeout_ms) as cluster:
        for name in named_groups(cluster, names, all_groups):
            group = groups.describe(cluster, name)
            found = _rows(cluster, group)
            if as_json:
                print_json(_as_dict(group, found))
            elif is_terminal():
                _print_group(group, found)
            else:
                rows += found
    if rows:
        print_table(_COLUMNS, rows)


def _rows(cluster: Cluster, group: Group) -> list[dict[str, Any]]:
    from pybroker.client import groups, offsets

    committed = groups.committed(cluster, group.name)
    readers = {partition: member for member in group.members for partition in member.assignment or ()}
    partitions = sorted({*committed, *readers})
    ends = offsets.look_up(cluster, dict.fromkeys(offsets.with_leader(cluster, partitions), offsets.LATEST))
    rows = []
    for partition in partitions:
        member, offset, end = readers.get(partition), committed.get(partition), ends.get(partition)
        rows.append(
            {
                "group": group.name,
                "topic": partition[0],
                "partition": partition[1],
                "committed_offset": offset,
                "end_offset": end,
                "lag": max(end - offset, 0) if end is not None and offset is not None else None,
                "client_id": member.client_id if member else None,
                "host": member.host.lstrip("/") if member else None,
                "member_id": member.id if member else None,
            }
        )
    return rows


def _as_dict(group: Group, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": len(group.members),
        "lag": sum(row["lag"] or 0 for row in rows),
        "partitions": [{key: value for key, value in row.items() if key != "group"} for row in rows],
    }


def _print_group(group: Group, rows: list[dict[str, Any]]) -> None:
    how = f"{group.type}, {group.assignor}" if group.assignor else group.type
    behind = sum(row["lag"] or 0 for row in rows)
    print_heading(
        group.name,
        f"{group.state} ({how}), {plural(len(group.members), 'member')}, {plural(behind, 'record')} behind, "
        f"coordinator {group.coordinator}",
    )
    if rows:
        # Without members, the columns that tell of them would be empty.
        print_table(
            [column for column in _COLUMNS[1:] if group.members or column.key not in ("client_id", "host")], rows
        )
    else:
        click.echo("  no offsets are committed")
    click.echo()
