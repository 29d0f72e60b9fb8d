"""`pybroker topics describe`: partitions, who leads and keeps them, and the topic's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pybroker.cli.admin.topic_names import exclude_internal_option, found_or_fail, matching
from pybroker.cli.broker_options import broker_options, connected
from pybroker.cli.name_options import complete_topics, names_option
from pybroker.cli.output import Column, is_terminal, plural, print_heading, print_json, print_table
from pybroker.protocol.uuids import uuid_to_text

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster
    from pybroker.client.offsets import TopicPartition
    from pybroker.client.topics import Partition, Topic

_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", number=True, ids=True),
    Column("leader", "leader", number=True, ids=True),
    Column("replicas", "replicas"),
    Column("isr", "isr"),
    Column("offline", "offline"),
]
_OFFSET_COLUMNS = [Column("first_offset", "first offset", number=True), Column("end_offset", "end offset", number=True)]
_Ends = Mapping["TopicPartition", tuple[int, int]]


@click.command(name="describe")
@broker_options
@names_option("--topic", "patterns", complete_topics, help="Only these; regular expressions will do.", metavar="TOPIC")
@exclude_internal_option
@click.option(
    "--offsets", "with_offsets", is_flag=True, help="Each partition's first offset, and that behind its last."
)
@click.option("--under-replicated-partitions", is_flag=True, help="Only partitions of which a replica is not in sync.")
@click.option("--unavailable-partitions", is_flag=True, help="Only partitions without leader.")
@click.option("--topics-with-overrides", is_flag=True, help="Only topics with settings of their own.")
@click.option("--if-exists", is_flag=True, help="It is no error when no topic matches.")
def command(
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
    patterns: tuple[str, ...],
    exclude_internal: bool,
    with_offsets: bool,
    under_replicated_partitions: bool,
    unavailable_partitions: bool,
    topics_with_overrides: bool,
    if_exists: bool,
) -> None:
    """Show topics with their partitions and what was set for them.

    With --json one object per topic, partitions inside. In a pipe one line per partition.
    """
    from pybroker.client import topics

    with connected(bootstrap, timeout_ms) as cluster:
        found = matching(topics.describe(cluster), patterns, exclude_internal)
        if not if_exists:
            found_or_fail(found, patterns)
        own = _own_settings(cluster, found)
        if topics_with_overrides:
            found = [topic for topic in found if own[topic.name]]
        ends = _ends(cluster, found) if with_offsets else {}
    rows = []
    for topic in found:
        partitions = [
            each
            for each in topic.partitions
            if (not under_replicated_partitions or each.is_under_replicated)
            and (not unavailable_partitions or each.leader == topics.NO_LEADER)
        ]
        if not partitions and (under_replicated_partitions or unavailable_partitions):
            continue
        if as_json:
            print_json(_as_dict(topic, partitions, own[topic.name], ends))
        elif is_terminal():
            _print_topic(topic, partitions, own[topic.name], ends)
        else:
            rows += [_row(topic, each, ends) for each in partitions]
    if rows:
        print_table(_columns(ends), rows)


def _own_settings(cluster: Cluster, found: list[Topic]) -> dict[str, dict[str, str | None]]:
    from pybroker.client import configs

    resources = [(configs.ResourceType.TOPIC, topic.name) for topic in found]
    settings = configs.describe(cluster, resources) if resources else {}
    return {
        resource[1]: {each.name: each.value for each in values if each.is_own(resource)}
        for resource, values in settings.items()
    }


def _ends(cluster: Cluster, found: list[Topic]) -> _Ends:
    from pybroker.client import offsets, topics

    led = [(topic.name, each.index) for topic in found for each in topic.partitions if each.leader != topics.NO_LEADER]
    return offsets.ends(cluster, led)


def _row(topic: Topic, each: Partition, ends: _Ends) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": topic.name,
        "partition": each.index,
        "leader": each.leader if each.leader >= 0 else None,
        "leader_epoch": each.leader_epoch,
        "replicas": each.replicas,
        "isr": each.isr,
        "offline": each.offline,
    }
    if ends:
        row["first_offset"], row["end_offset"] = ends.get((topic.name, each.index), (None, None))
    return row


def _as_dict(topic: Topic, partitions: list[Partition], own: Mapping[str, str | None], ends: _Ends) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": uuid_to_text(topic.id),
        "internal": topic.is_internal,
        "replication_factor": topic.replication_factor,
        "configs": own,
        "partitions": [
            {key: value for key, value in _row(topic, each, ends).items() if key != "topic"} for each in partitions
        ],
    }


def _print_topic(topic: Topic, partitions: list[Partition], own: Mapping[str, str | None], ends: _Ends) -> None:
    """For people: what holds for the topic above what differs by partition."""
    print_heading(
        topic.name,
        f"id {uuid_to_text(topic.id)}, {plural(len(topic.partitions), 'partition')}, "
        f"replication factor {topic.replication_factor}" + (", internal" if topic.is_internal else ""),
    )
    for name, value in own.items():
        click.echo(f"  {name}={value}")
    print_table(_columns(ends)[1:], [_row(topic, each, ends) for each in partitions])
    click.echo()


def _columns(ends: _Ends) -> list[Column]:
    return _COLUMNS + (_OFFSET_COLUMNS if ends else [])
