"""What can be seen of a topic while nothing happens to it: its ends, its records, look-ups by time, its producers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.harness.differential.batches import SeenRecord, seen_records
from tests.harness.differential.generate import SETTLE_AGES_MS
from tests.harness.differential.history import DAY_MS, HOUR_MS
from tests.harness.differential.side import EARLIEST, LATEST, MAX_TIMESTAMP, Place, Side

_LOOKUP_AGES_MS = (60 * DAY_MS, 21 * DAY_MS, 20 * DAY_MS, 18 * DAY_MS, 15 * DAY_MS + HOUR_MS, 10 * DAY_MS, HOUR_MS)
_RANDOM_READS = 4


@dataclass(frozen=True)
class Observation:
    """`lookups` has the age and the timestamp looked for, and where they led; `reads` an offset with the first record
    that a fetch from there finds."""

    start_offset: int
    end_offset: int
    stable_offset: int
    records: tuple[SeenRecord, ...]
    lookups: tuple[tuple[int, int, Place], ...]
    reads: tuple[tuple[int, int], ...]
    aborted: tuple[tuple[int, int], ...]
    producers: tuple[tuple[int, int, int, int], ...]
    segments: tuple[tuple[int, int], ...]
    cleaned_offset: int | None


def _read_all(side: Side, topic: str, start_offset: int, end_offset: int) -> list[SeenRecord]:
    records: list[SeenRecord] = []
    offset = start_offset
    while offset < end_offset:
        row = side.fetch(topic, offset)
        assert row.error_code == 0, f"{side.name}: {topic} at {offset}: error {row.error_code}"
        seen, next_offset = seen_records(row.records or b"", offset)
        assert next_offset > offset, f"{side.name}: {topic}: nothing at {offset}, and the log ends at {end_offset}"
        records += seen
        offset = next_offset
    return records


def _aborted(side: Side, topic: str, start_offset: int, stable_offset: int) -> set[tuple[int, int]]:
    """(producer id, first offset) of every transaction that a read-committed consumer is told to skip."""
    found: set[tuple[int, int]] = set()
    offset = start_offset
    while offset < stable_offset:
        row = side.fetch(topic, offset, isolation_level=1)
        assert row.error_code == 0, f"{side.name}: {topic} at {offset}, read committed: error {row.error_code}"
        # Apache Kafka goes by its index, and may name some that begin where nobody reads yet.
        aborted = [each for each in row.aborted_transactions or [] if each.first_offset < stable_offset]
        found |= {(each.producer_id, each.first_offset) for each in aborted}
        _, next_offset = seen_records(row.records or b"", offset)
        assert next_offset > offset, f"{side.name}: {topic}: nothing at {offset}, stable up to {stable_offset}"
        offset = next_offset
    return found


def _read_somewhere(side: Side, topic: str, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """Fetches from offsets in the middle: the first record found at or after each, -1 when there is none."""
    chance = random.Random(f"{topic.partition('.')[2]} {start_offset} {end_offset}")
    reads = []
    for _ in range(_RANDOM_READS if end_offset > start_offset else 0):
        offset = position = chance.randrange(start_offset, end_offset)
        found: list[SeenRecord] = []
        while not found and position < end_offset:
            found, position = seen_records(side.fetch(topic, position).records or b"", position)
        reads.append((offset, found[0].offset if found else -1))
    return reads


def observe(side: Side, topics: Sequence[str], start_ms: int) -> dict[str, Observation]:
    """Look at all of them. AssertionError when a log cannot be read from its start to its end."""
    starts = side.list_offsets(dict.fromkeys(topics, EARLIEST))
    ends = side.list_offsets(dict.fromkeys(topics, LATEST))
    stable = side.list_offsets(dict.fromkeys(topics, LATEST), isolation_level=1)
    ages = (*_LOOKUP_AGES_MS, SETTLE_AGES_MS[0])
    lookups = {age: side.list_offsets(dict.fromkeys(topics, start_ms - age)) for age in ages}
    lookups[MAX_TIMESTAMP] = side.list_offsets(dict.fromkeys(topics, MAX_TIMESTAMP))
    producers = side.producers(topics)
    cleaned = side.cleaned_offsets()
    seen = {}
    for topic in topics:
        start, end = starts[topic].offset, ends[topic].offset
        aborted = _aborted(side, topic, start, stable[topic].offset)
        seen[topic] = Observation(
            start_offset=start,
            end_offset=end,
            stable_offset=stable[topic].offset,
            records=tuple(_read_all(side, topic, start, end)),
            lookups=tuple((age, start_ms - age, places[topic]) for age, places in lookups.items()),
            reads=tuple(_read_somewhere(side, topic, start, end)),
            aborted=tuple(sorted(aborted)),
            producers=tuple(
                sorted(
                    (each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
                    for each in producers[topic]
                )
            ),
            segments=side.segments(topic),
            cleaned_offset=cleaned.get(topic),
        )
    return seen
