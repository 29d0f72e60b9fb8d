"""What must be equal in two brokers' outcomes of one history. Pure.

A log that is only deleted from: everything. A compacted one: what is kept of each key, and where; look-ups by time may
lead to another place only where the cleaner's grouping of segments decides. Markers and batches stamped by the broker
carry its own clock. What a broker compresses anew has a size of its own, which decides where its segments end, and so
how far it is cleaned, until it has settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.harness.differential.batches import SeenRecord
from tests.harness.differential.history import History
from tests.harness.differential.observation import Observation
from tests.harness.differential.playing import Outcome
from tests.harness.differential.side import MAX_TIMESTAMP


def differences(history: History, ours: Outcome, theirs: Outcome) -> list[str]:
    """What differs, for people; empty when nothing does. `theirs` is the reference."""
    found = _answers(ours, theirs)
    names = [when for when, _ in theirs.observations]
    if names != [when for when, _ in ours.observations]:
        return [*found, f"looked at {ours.observations} instead of {names}"]
    for (when, one), (_, other) in zip(ours.observations, theirs.observations, strict=True):
        found += [f"{when}: {text}" for text in _seen(history, one, other, when.startswith("round"))]
    return found


def _answers(ours: Outcome, theirs: Outcome) -> list[str]:
    return [
        f"operation {number} answered {one}, Apache Kafka {other}"
        for number, (one, other) in enumerate(zip(ours.answers, theirs.answers, strict=True))
        if one != other
    ]


def _seen(history: History, ours: Observation, theirs: Observation, unsettled: bool) -> list[str]:
    found = [f"a fetch from {offset} found {first}" for offset, first in _wrong_reads(ours)]
    fields = ["start_offset", "end_offset", "stable_offset", "aborted"]
    if "compact" not in history.policies and not history.refusals:
        fields.append("segments")
    for name in fields:
        one, other = getattr(ours, name), getattr(theirs, name)
        if one != other:
            found.append(f"{name} is {_only(one, other)}, Apache Kafka's {_only(other, one)}")
    found += _producers(ours, theirs)
    if unsettled and _is_compressed_anew(history) and _active(ours) != _active(theirs):
        return found
    # Of a log that is all deleted one may have been cleaned and the other not.
    cleaned = [max(each.cleaned_offset or 0, theirs.start_offset) for each in (ours, theirs)]
    if cleaned[0] != cleaned[1]:
        found.append(f"cleaned up to {ours.cleaned_offset}, Apache Kafka up to {theirs.cleaned_offset}")
    # How many passes a cleaner that works all the time has made, and so whether the window of a tombstone is over,
    # depends on the moment, until enough of them have been made.
    passing = _tombstones(ours) ^ _tombstones(theirs) if unsettled and history.live else set()
    with_timestamps = history.setting("message.timestamp.type", "CreateTime") == "CreateTime"
    if with_timestamps and not passing:
        found += _lookups(ours, theirs)
    kept = [[record for record in each.records if record.offset not in passing] for each in (ours, theirs)]
    return found + _records(kept[0], kept[1], with_timestamps=with_timestamps)


def _is_compressed_anew(history: History) -> bool:
    return history.setting("compression.type", "producer") not in ("producer", "uncompressed")


def _active(observation: Observation) -> int:
    """The first offset of the segment that is written to."""
    return max((base_offset for base_offset, _ in observation.segments), default=-1)


def _tombstones(observation: Observation) -> set[int]:
    return {each.offset for each in observation.records if each.value is None and not each.marker}


def _wrong_reads(ours: Observation) -> list[tuple[int, int]]:
    """Fetches from the middle that did not find the first record from there on."""
    offsets = [each.offset for each in ours.records]
    return [
        (offset, first)
        for offset, first in ours.reads
        if first != next((each for each in offsets if each >= offset), -1)
    ]


def _producers(ours: Observation, theirs: Observation) -> list[str]:
    """At a restart Apache Kafka forgets of producers what stands in deleted records; to know it longer is no harm."""
    known = {each[0]: each for each in ours.producers}
    found = []
    for producer_id, epoch, sequence, transaction_offset in theirs.producers:
        our_epoch, our_sequence, our_offset = known.get(producer_id, (-1, -2, -2, -2))[1:]
        # Of a transaction whose first records are deleted the rest counts; -1: none is open.
        ours_open, theirs_open = (
            max(offset, ours.start_offset) if offset >= 0 else -1 for offset in (our_offset, transaction_offset)
        )
        if our_epoch != epoch or sequence not in (-1, our_sequence) or ours_open != theirs_open:
            found.append(
                f"producer {producer_id} is {known.get(producer_id)}, Apache Kafka's "
                f"{(producer_id, epoch, sequence, transaction_offset)}"
            )
    return found


def _lookups(ours: Observation, theirs: Observation) -> list[str]:
    """Apache Kafka looks into one segment only, by the largest timestamp it ever had: when that record lies below the
    log start offset or was compacted away, it finds nothing or too much. Then ours has to be right by the records."""
    found = []
    start_ms = theirs.lookups[0][0] + theirs.lookups[0][1]
    for (age_ms, wanted_ms, one), (_, _, other) in zip(ours.lookups, theirs.lookups, strict=True):
        if one == other or (one.offset == other.offset and min(one.timestamp_ms, other.timestamp_ms) > start_ms):
            continue  # a marker, with the clock of the broker that wrote it
        right = next((each for each in ours.records if each.timestamp_ms >= wanted_ms), None)
        if (
            age_ms == MAX_TIMESTAMP
            or right is None
            or (right.offset, right.timestamp_ms) != (one.offset, one.timestamp_ms)
        ):
            found.append(f"the look-up of {wanted_ms} leads to {one}, Apache Kafka's to {other}")
    return found


def _only(one: object, other: object) -> object:
    """Of two tuples only what is not in both."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return tuple(each for each in one if each not in other)
    return one


def _key(record: SeenRecord, with_timestamps: bool) -> SeenRecord:
    timestamp_ms = record.timestamp_ms if with_timestamps and not record.marker else 0
    return replace(record, timestamp_ms=timestamp_ms)


def _records(ours: Sequence[SeenRecord], theirs: Sequence[SeenRecord], *, with_timestamps: bool) -> list[str]:
    one = {record.offset: record for record in ours}
    other = {record.offset: record for record in theirs}
    found = []
    if len(one) != len(ours) or list(one) != sorted(one):
        found.append("records are doubled or out of order")
    lost = [other[offset].short() for offset in other if offset not in one]
    kept = [one[offset].short() for offset in one if offset not in other]
    changed = [
        f"{one[offset]} instead of {other[offset]}"
        for offset in one
        if offset in other and _key(one[offset], with_timestamps) != _key(other[offset], with_timestamps)
    ]
    for what, which in (("lost", lost), ("kept, which Apache Kafka dropped", kept), ("changed", changed)):
        if which:
            found.append(f"{len(which)} records {what}: {', '.join(which[:4])}")
    return found
