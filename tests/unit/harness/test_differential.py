"""The parts of a differential run that need no broker: histories, their files, shrinking, and what is compared."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from pybroker.protocol import record_batch
from tests.harness.differential import batches
from tests.harness.differential import history as h
from tests.harness.differential.comparison import differences
from tests.harness.differential.generate import histories
from tests.harness.differential.observation import Observation
from tests.harness.differential.playing import Outcome
from tests.harness.differential.shrinking import shrink
from tests.harness.differential.side import Place


def test_a_seed_always_gives_the_same_histories() -> None:
    assert histories(5, 12, transactions=True) == histories(5, 12, transactions=True)
    assert histories(5, 12, transactions=True) != histories(6, 12, transactions=True)


def test_histories_are_saved_whole() -> None:
    for each in histories(1, 30, transactions=True):
        assert h.from_json(each.as_json()) == each
    with pytest.raises(ValueError, match="cannot be a Vanish"):
        h.from_json(each.as_json().replace('"kind": "Append"', '"kind": "Vanish"', 1))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_what_the_history_says(codec: str) -> None:
    plans = (h.RecordPlan("a", 100, 50), h.RecordPlan(None, None, None), h.RecordPlan("b", 0, -20, has_header=True))
    data = batches.build(h.Append(plans, codec, (7, 1, 30), transactional=True), "x", 1000)
    (batch,) = record_batch.parse(data)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (7, 1, 30, True)
    assert [(each.key, each.timestamp_ms) for each in batch.records] == [(b"a", 950), (None, -1), (b"b", 1020)]
    assert [each.value if each.value is None else len(each.value) for each in batch.records] == [100, None, 0]
    assert batch.records[2].headers == (("source", b"x"),)
    seen, next_offset = batches.seen_records(struct.pack(">q", 40) + data[8:], 41)
    assert [each.offset for each in seen] == [41, 42] and next_offset == 43


def _observation(*records: batches.SeenRecord) -> Observation:
    place = Place(0, records[0].offset, records[0].timestamp_ms)
    return Observation(
        start_offset=0,
        end_offset=10,
        stable_offset=10,
        records=records,
        lookups=((50, 950, place),),
        reads=((0, records[0].offset),),
        aborted=(),
        producers=((7, 0, 3, -1),),
        segments=((0, 500),),
        cleaned_offset=None,
    )


def _record(offset: int, value: bytes | None = b"v") -> batches.SeenRecord:
    return batches.SeenRecord(offset, 960 + offset, b"k", value, (), (-1, -1), False)


def _differences(one: Observation, other: Observation, history: h.History) -> list[str]:
    outcomes = [Outcome("t", [("append", 0, 0)], [("round 0", each)]) for each in (one, other)]
    return differences(history, *outcomes)


DELETE = h.History("t", (("cleanup.policy", "delete"),), ())
COMPACT = replace(DELETE, config=(("cleanup.policy", "compact"),))


def test_what_must_be_equal() -> None:
    whole = _observation(_record(0), _record(4))
    assert _differences(whole, whole, DELETE) == []
    assert "1 records lost: 4" in _differences(_observation(_record(0)), whole, DELETE)[0]
    assert "kept, which Apache Kafka dropped" in _differences(whole, _observation(_record(0)), COMPACT)[0]
    assert "changed" in _differences(_observation(_record(0), _record(4, b"w")), whole, COMPACT)[0]
    for name, value in (
        ("start_offset", 1),
        ("end_offset", 9),
        ("stable_offset", 9),
        ("aborted", ((7, 1),)),
        ("producers", ((7, 0, 2, -1),)),
        ("producers", ()),
        ("cleaned_offset", 8),
        ("segments", ((0, 400),)),
        ("reads", ((1, 0),)),
        ("lookups", ((50, 950, Place(0, 4, 964)),)),
    ):
        assert len(_differences(replace(whole, **{name: value}), whole, DELETE)) == 1, (name, value)


def test_what_need_not_be_equal() -> None:
    whole = _observation(_record(0), _record(4))
    longer = replace(whole, producers=((6, 0, 1, -1), (7, 0, 3, -1)))
    assert _differences(longer, whole, DELETE) == []
    assert _differences(replace(whole, segments=((0, 400),)), whole, COMPACT) == []
    found = replace(whole, lookups=((50, 950, Place(0, -1, -1)),))
    assert _differences(whole, found, DELETE) == []
    assert _differences(found, whole, DELETE) != []
    tombstone = _observation(_record(0), _record(3, None), _record(4))
    assert _differences(tombstone, whole, COMPACT) != []
    assert _differences(tombstone, whole, replace(COMPACT, live=True)) == []
    cleaned = replace(_observation(_record(4)), segments=((0, 10), (3, 5)), cleaned_offset=3)
    anew = replace(COMPACT, config=(*COMPACT.config, ("compression.type", "zstd")))
    assert _differences(cleaned, whole, anew) == []
    assert _differences(cleaned, whole, COMPACT) != []
    assert _differences(replace(cleaned, segments=whole.segments), whole, anew) != []


def test_answers_are_compared() -> None:
    one = Outcome("t", [("append", 0, 5)], [])
    other = Outcome("t", [("append", 45, -1)], [])
    assert differences(DELETE, one, other) == ["operation 0 answered ('append', 0, 5), Apache Kafka ('append', 45, -1)"]


def test_a_failing_history_is_shrunk_to_what_makes_it_fail() -> None:
    """Fails whenever a deletion comes after a compressed batch."""

    def fails(history: h.History) -> bool:
        compressed = False
        for each in [operation for one in history.rounds for operation in one.operations]:
            if isinstance(each, h.Append) and each.codec != "none":
                compressed = True
            if isinstance(each, h.DeleteRecords) and compressed:
                return True
        return False

    failing = next(each for each in histories(1, 300, transactions=False) if fails(each) and not each.live)
    smallest = shrink(failing, lambda candidates: [each for each in candidates if fails(each)])
    assert smallest.operation_count == 2
    assert fails(smallest)
    (append,) = [each for one in smallest.rounds for each in one.operations if isinstance(each, h.Append)]
    assert len(append.records) == 1
