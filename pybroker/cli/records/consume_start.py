"""Where `pybroker consume` begins without a group: asked of the broker before it reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pybroker.cli.common import fail

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster
    from pybroker.client.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Start:
    """`time_ms` if that is where; else an offset, counted from the end if negative; else an end."""

    offset: int | None = None
    time_ms: int | None = None
    is_earliest: bool = False


def start_of(offset: str | None, from_beginning: bool, from_time_ms: int | None) -> Start:
    """From the command's options; a usage error when they contradict each other."""
    if (offset is not None) + from_beginning + (from_time_ms is not None) > 1:
        raise click.UsageError("--offset, --from-beginning and --from-time contradict each other")
    if from_beginning or offset in ("earliest", "beginning"):
        return Start(is_earliest=True)
    if from_time_ms is not None:
        return Start(time_ms=from_time_ms)
    if offset is None or offset in ("latest", "end"):
        return Start()
    if re.fullmatch(r"-?\d+", offset) is None:
        raise click.UsageError(f"--offset {offset!r}: accepted is earliest, latest, a number, or -N for the last N")
    return Start(offset=int(offset))


def partitions_to_read(
    cluster: Cluster, names: Collection[str], pattern: str | None, indexes: Collection[int]
) -> list[TopicPartition]:
    """Partitions of the topics named, or of those that the regular expression matches. Ends the command without any."""
    from pybroker.cli.admin.topic_names import matching
    from pybroker.client import topics as client

    if pattern is not None:
        topics = matching(client.describe(cluster), [pattern], exclude_internal=True)
        if not topics:
            fail(f"no topic matches {pattern}")
    else:
        topics = client.describe(cluster, names)
    found = [(topic.name, each.index) for topic in topics for each in topic.partitions]
    if indexes:
        missing = {(topic.name, index) for topic in topics for index in indexes} - set(found)
        if missing:
            topic_name, index = min(missing)
            fail(f"topic {topic_name} has no partition {index}")
        found = [partition for partition in found if partition[1] in indexes]
    return found


def positions(
    cluster: Cluster,
    start: Start,
    partitions: Collection[TopicPartition],
    ends: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, int]:
    """The first offset to read of each; `ends` are what they hold now."""
    from pybroker.client import offsets

    if start.time_ms is not None:
        found = offsets.look_up(cluster, dict.fromkeys(partitions, start.time_ms))
        return {each: ends[each][1] if found[each] == offsets.NONE else found[each] for each in partitions}
    return {each: _position(start, *ends[each]) for each in partitions}


def _position(start: Start, first: int, end: int) -> int:
    if start.is_earliest:
        return first
    if start.offset is None:
        return end
    wanted = start.offset if start.offset >= 0 else end + start.offset
    return max(wanted, first)
