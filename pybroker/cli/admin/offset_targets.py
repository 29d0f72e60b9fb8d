"""Where offsets are moved to: the arithmetic of `pybroker groups reset-offsets`."""

from __future__ import annotations

import csv
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pybroker.client import offsets

if TYPE_CHECKING:
    from pybroker.client.cluster import Cluster
    from pybroker.client.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Target:
    """`kind` is earliest, latest, current, offset, time (ms) or shift; `value` belongs to the last three."""

    kind: str
    value: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """`old_offset` is None where none was committed. `note` says when it is not just what was asked for."""

    partition: TopicPartition
    old_offset: int | None
    new_offset: int
    note: str | None


def target_of(options: Mapping[str, Any]) -> Target:
    """From the command's options; a usage error unless exactly one is given."""
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise click.UsageError(f"say where to, with one of {names}")
    ((name, value),) = given.items()
    match name:
        case "to_offset":
            return Target("offset", value)
        case "to_datetime":
            return Target("time", value)
        case "by_duration":
            return Target("time", max(int(time.time() * 1000) - value, 0))
        case "shift_by":
            return Target("shift", value)
        case _:
            return Target(name.removeprefix("to_"))


def moves(
    cluster: Cluster, target: Target, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, int]
) -> list[Move]:
    """One for each partition, in their order. ClientError when one is not there."""
    ends = offsets.ends(cluster, partitions)
    by_time = offsets.look_up(cluster, dict.fromkeys(partitions, target.value)) if target.kind == "time" else {}
    return [_move(target, each, committed.get(each), ends[each], by_time.get(each)) for each in partitions]


def moves_to(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> list[Move]:
    """One for each partition, to an offset of its own. ClientError when one is not there."""
    ends = offsets.ends(cluster, wanted)
    return [
        _move(Target("offset", offset), each, committed.get(each), ends[each], None) for each, offset in wanted.items()
    ]


def read_file(path: Path) -> dict[TopicPartition, int]:
    """Kafka's form, topic,partition,offset in each line; a usage error names the line that is none."""
    found = {}
    with open(path, newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            try:
                topic, partition, offset = row
                found[topic, int(partition)] = int(offset)
            except ValueError:
                raise click.UsageError(f"{path}:{number}: a line is TOPIC,PARTITION,OFFSET") from None
    return found


def _move(
    target: Target, partition: TopicPartition, old: int | None, ends: tuple[int, int], by_time: int | None
) -> Move:
    first, end = ends
    note = None
    match target.kind:
        case "earliest":
            wanted = first
        case "latest":
            wanted = end
        case "time":
            wanted = end if by_time is None or by_time == offsets.NONE else by_time
            note = "no record is so late" if by_time == offsets.NONE else None
        case "offset":
            wanted = target.value
        case "shift" | "current" if old is None:
            wanted = end
            note = "nothing was committed: the end"
        case _:
            assert old is not None
            wanted = old + target.value
    new = min(max(wanted, first), end)
    if new != wanted:
        note = (
            f"{wanted} is before the first record" if new == first and wanted < first else f"{wanted} is behind the end"
        )
    return Move(partition, old, new, note)
