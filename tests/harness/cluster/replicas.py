"""Whether the replicas of a partition hold the same bytes, by the log dirs of stopped brokers. Reads only.

Batches are compared one by one, because segments need not begin at the same offsets; from where all logs have begun up
to the largest high watermark that any of the log dirs has kept. Not for compacted topics: each broker cleans alone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pybroker.storage.files import offset_checkpoint
from tests.harness.cluster.checker import Kind, Violation
from tests.harness.cluster.history import Place

_HEAD = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_LENGTH_END = 12
_PARTITION = re.compile(r"(.+)-(\d+)")


@dataclass(frozen=True, slots=True)
class _Batch:
    first_offset: int
    last_offset: int
    data: bytes


def check_replicas(log_dirs: Mapping[int, Path], topics: frozenset[str]) -> list[Violation]:
    """What differs in these topics. `log_dirs` by broker id; a broker without a dir of the partition is none of its
    replicas."""
    found: list[Violation] = []
    for place in sorted(_places(log_dirs, topics)):
        name = f"{place[0]}-{place[1]}"
        logs = {broker: path / name for broker, path in log_dirs.items() if (path / name).is_dir()}
        high_watermark = max(
            offset_checkpoint.read(log_dirs[broker] / offset_checkpoint.HIGH_WATERMARK).get(place, 0) for broker in logs
        )
        found += _check_place(name, logs, high_watermark)
    return found


def _places(log_dirs: Mapping[int, Path], topics: frozenset[str]) -> set[Place]:
    found = set()
    for path in log_dirs.values():
        for each in path.iterdir():
            match = _PARTITION.fullmatch(each.name)
            if match and match[1] in topics and each.is_dir():
                found.add((match[1], int(match[2])))
    return found


def _check_place(name: str, logs: Mapping[int, Path], high_watermark: int) -> Iterator[Violation]:
    start = max(_log_start(path) for path in logs.values())
    first, *others = logs
    for other in others:
        ours = _batches(logs[first], start, high_watermark)
        theirs = _batches(logs[other], start, high_watermark)
        difference = _first_difference(ours, theirs, first, other)
        if difference is not None:
            yield Violation(Kind.REPLICAS_DIFFER, f"{name}, below the high watermark {high_watermark}: {difference}")
    for broker, path in logs.items():
        end = max((batch.last_offset + 1 for batch in _batches(path, start, high_watermark)), default=start)
        if end < high_watermark:
            yield Violation(
                Kind.REPLICAS_DIFFER,
                f"{name}: broker {broker} ends at {end}, below the high watermark {high_watermark}",
            )


def _first_difference(ours: Iterator[_Batch], theirs: Iterator[_Batch], first: int, other: int) -> str | None:
    while True:
        one, two = next(ours, None), next(theirs, None)
        if one is None or two is None:
            return None  # who ends too early is told of by itself
        if one != two:
            if (one.first_offset, one.last_offset) != (two.first_offset, two.last_offset):
                return (
                    f"broker {first} has a batch of offsets {one.first_offset} to {one.last_offset} where broker "
                    f"{other} has {two.first_offset} to {two.last_offset}"
                )
            at = next(index for index, pair in enumerate(zip(one.data, two.data, strict=False)) if pair[0] != pair[1])
            return f"brokers {first} and {other} differ in byte {at} of the batch at offset {one.first_offset}"


def _log_start(partition: Path) -> int:
    return min((int(path.stem) for path in partition.glob("*.log")), default=0)


def _batches(partition: Path, start: int, end: int) -> Iterator[_Batch]:
    """Those that hold an offset of `start` to `end`, in the order of their segments; a torn one at the end is none."""
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position + _HEAD.size <= len(data):
            first_offset, length, last_delta = _HEAD.unpack_from(data, position)
            following = position + _LENGTH_END + length
            if length <= 0 or following > len(data):
                break
            batch = _Batch(first_offset, first_offset + last_delta, data[position:following])
            if batch.first_offset >= end:
                return
            if batch.last_offset >= start:
                yield batch
            position = following
