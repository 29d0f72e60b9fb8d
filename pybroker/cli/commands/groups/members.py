"""`pybroker groups members`: who is in a group, and who reads what."""

from __future__ import annotations

from typing import Any

import click

from pybroker.cli.admin.group_options import all_groups_option, check_names, groups_option, named_groups
from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.output import Column, print_rows

_COLUMNS = [
    Column("group", "group"),
    Column("client_id", "client"),
    Column("host", "host"),
    Column("instance_id", "instance"),
    Column("partitions", "partitions", number=True),
    Column("reads", "reads"),
]
_MEMBER_ID = Column("member_id", "member")


@click.command(name="members")
@broker_options
@groups_option
@all_groups_option
@click.option("--verbose", is_flag=True, help="Ids of the members, too.")
def command(
    bootstrap: str, timeout_ms: int, as_json: bool, names: tuple[str, ...], all_groups: bool, verbose: bool
) -> None:
    """Show members, and the partitions that each reads."""
    from pybroker.client import groups

    check_names(names, all_groups)
    with connected(bootstrap, timeout_ms) as cluster:
        found = [groups.describe(cluster, name) for name in named_groups(cluster, names, all_groups)]
    rows = [_row(group.name, member) for group in found for member in group.members]
    if rows:
        print_rows(_COLUMNS + ([_MEMBER_ID] if verbose else []), rows, as_json)
    elif not as_json:
        click.echo("no members", err=True)


def _row(group: str, member: Any) -> dict[str, Any]:
    reads: dict[str, list[int]] = {}
    for topic, index in member.assignment or ():
        reads.setdefault(topic, []).append(index)
    return {
        "group": group,
        "client_id": member.client_id,
        "host": member.host.lstrip("/"),
        "instance_id": member.instance_id,
        "partitions": None if member.assignment is None else len(member.assignment),
        "reads": [f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in sorted(reads.items())],
        "member_id": member.id,
    }
