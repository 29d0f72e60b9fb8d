"""Options that name groups, and which of their partitions are meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import click

from pybroker.cli.broker_options import topic_partitions
from pybroker.cli.name_options import complete_groups, name_option, names_option

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster
    from pybroker.client.offsets import TopicPartition

group_option = name_option("--group", "group", complete_groups, help="Which.", metavar="GROUP")
groups_option = names_option("--group", "names", complete_groups, help="Which; may be repeated.", metavar="GROUP")
all_groups_option = click.option("--all-groups", is_flag=True, help="All groups.")


def named_groups(cluster: Cluster, names: Collection[str], all_groups: bool) -> list[str]:
    """Those named, or all groups that commit offsets."""
    from pybroker.client import groups

    if not all_groups:
        return list(dict.fromkeys(names))
    offsets_of = (groups.CLASSIC, groups.CONSUMER)
    return [each.name for each in groups.list_groups(cluster) if each.type in offsets_of]


def check_names(names: Collection[str], all_groups: bool) -> None:
    """A usage error unless groups are named in one way."""
    if bool(names) == all_groups:
        raise click.UsageError("say which groups: either --group or --all-groups")


def partitions_of(cluster: Cluster, topics: Iterable[str]) -> list[TopicPartition]:
    """The partitions that TOPIC and TOPIC:0,1 mean. RequestError for a topic that is not there."""
    from pybroker.client import topics as client

    found = []
    for text in topics:
        name, indexes = topic_partitions("--topic", text)
        if indexes is None:
            (topic,) = client.describe(cluster, [name])
            indexes = [each.index for each in topic.partitions]
        found += [(name, index) for index in indexes]
    return list(dict.fromkeys(found))
