"""Committed offsets in virtual time: visibility, retention, deletion, deleted topics, open transactions."""

from __future__ import annotations

import asyncio
import sys

import pytest
from machine import MAX_BATCH_BYTES, TOPIC_ID, Machine, persisted

from pybroker.coordinator.group.log import records, replay
from pybroker.coordinator.group.model.offset_store import OffsetEntry
from pybroker.coordinator.group.partition import group_partition, java_string_hash
from pybroker.coordinator.group.requests import offsets, removal
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.uuids import ZERO_UUID
from pybroker.turns import run_at_once

WEEK_MS = 7 * 24 * 3600 * 1000


def expire(machine: Machine) -> None:
    for group in list(machine.state.groups.values()):
        machine.submit(removal.expire_group(machine.state, group, MAX_BATCH_BYTES).outcome)


def test_a_commit_is_visible_once_it_is_committed() -> None:
    machine = Machine()
    machine.hold = True
    machine.commit("g", 5)
    assert machine.committed("g") is None
    machine.decide()
    assert machine.committed("g") == 5
    machine.commit("g", 6)
    machine.decide(ErrorCode.NOT_COORDINATOR)
    assert machine.committed("g") == 5
    assert not machine.state.in_flight_commits


@pytest.mark.parametrize("expire_timestamp_ms", [-1, 99])
def test_the_records_of_a_commit_say_what_its_change_does(expire_timestamp_ms: int) -> None:
    entries = {
        partition: OffsetEntry(1 << partition, epoch, metadata, 77, expire_timestamp_ms, TOPIC_ID)
        for partition, epoch, metadata in ((3, 1, ""), (1, -1, "x" * 200), (62, 5, ""), (2, 0, "é"))
    }
    live, replayed = Machine().state, Machine().state
    made = run_at_once(records.offset_commits("g", "events", entries))
    assert [record.change is not None for record in made] == [True, False, False, False]
    replay.apply(live, made[0].change, 10)
    for offset, record in enumerate(made, start=10):
        change = replay.decode(record.key, record.value)
        assert change is not None
        replay.apply(replayed, change, offset)
    assert live.groups.keys() == replayed.groups.keys() == {"g"}
    stored = live.offsets.group("g")["events"], replayed.offsets.group("g")["events"]
    assert list(stored[0]) == list(stored[1]) == list(entries)
    for partition, entry in stored[0].items():
        names = ["offset", "metadata", "commit_timestamp_ms", "expire_timestamp_ms", "record_offset"]
        if expire_timestamp_ms < 0:  # there is no room for both
            names += ["leader_epoch", "topic_id"]
        for name in names:
            assert getattr(entry, name) == getattr(stored[1][partition], name)


def test_offsets_of_a_standalone_consumer_expire_by_their_commit_time() -> None:
    machine = Machine()
    machine.commit("g", 5)
    machine.advance(WEEK_MS // 2)
    machine.commit("g", 6, partition=1)
    machine.advance(WEEK_MS // 2 - 1)
    expire(machine)
    assert machine.committed("g") == 5
    machine.advance(1)
    expire(machine)
    assert (machine.committed("g"), machine.committed("g", 1)) == (None, 6)
    machine.advance(WEEK_MS)
    expire(machine)
    assert "g" not in machine.state.groups
    assert persisted(Machine(machine.log).state) == {"groups": {}, "offsets": {}}


def test_offsets_with_their_own_retention() -> None:
    machine = Machine()
    machine.commit("g", 5, retention_ms=1_000)
    machine.advance(999)
    expire(machine)
    assert machine.committed("g") == 5
    machine.advance(1)
    expire(machine)
    assert machine.committed("g") is None


def test_offsets_of_a_live_group_expire_only_for_topics_it_does_not_read() -> None:
    machine = Machine()
    generation, (member,) = machine.stable_group("g")
    for topic in ("events", "other"):
        machine.commit("g", 5, member=member, generation=generation, topic=topic)
    for _ in range(WEEK_MS // 9_000 + 1):
        machine.clock.now_ms += 9_000
        machine.heartbeat("g", generation, member)
    expire(machine)
    assert machine.committed("g") == 5
    assert machine.committed("g", topic="other") is None


def test_the_longest_retention_is_no_date_beyond_all_dates() -> None:
    machine = Machine()
    machine.commit("g", 5, retention_ms=2**63 - 1)
    machine.advance(2 * WEEK_MS)
    expire(machine)
    assert machine.committed("g") == 5


def test_retention_of_a_group_counts_from_when_it_became_empty() -> None:
    machine = Machine()
    generation, (member,) = machine.stable_group("g")
    machine.commit("g", 5, member=member, generation=generation)
    for _ in range(2 * WEEK_MS // 9_000):
        machine.clock.now_ms += 9_000
        machine.heartbeat("g", generation, member)
    machine.leave("g", member)
    reloaded = Machine(machine.log)
    for other in (machine, reloaded):
        other.clock.now_ms = machine.clock.now_ms
    for other in (machine, reloaded):
        start_ms = other.clock.now_ms
        other.advance(WEEK_MS - 1)
        expire(other)
        assert other.committed("g") == 5
        other.advance(1)
        expire(other)
        assert "g" not in other.state.groups
        other.clock.now_ms = start_ms


def test_expiry_leaves_a_group_alone_while_a_commit_is_in_flight() -> None:
    machine = Machine()
    machine.commit("g", 5)
    machine.advance(WEEK_MS)
    machine.hold = True
    machine.commit("g", 6)
    expire(machine)
    machine.decide()
    assert machine.committed("g") == 6
    assert persisted(Machine(machine.log).state) == persisted(machine.state)


def test_group_stays_when_its_removal_cannot_be_stored() -> None:
    machine = Machine()
    machine.commit("g", 5)
    machine.advance(WEEK_MS)
    machine.hold = True
    expire(machine)
    with pytest.raises(KafkaError) as refused:
        machine.commit("g", 6)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.decide(ErrorCode.NOT_COORDINATOR)
    machine.commit("g", 7)
    machine.decide()
    assert machine.committed("g") == 7


def test_offsets_of_a_deleted_topic_go_but_not_those_of_its_successor() -> None:
    machine = Machine()
    machine.commit("g", 5)
    assert removal.forget_topics(machine.state, {"events": b"\1" * 16}, "g", MAX_BATCH_BYTES).outcome.records == []
    machine.submit(removal.forget_topics(machine.state, {"events": TOPIC_ID}, "g", MAX_BATCH_BYTES).outcome)
    assert machine.committed("g") is None


def test_offset_of_an_earlier_topic_of_the_same_name_is_not_fetched() -> None:
    machine = Machine()
    machine.commit("g", 5)
    for topic_id, expected in ((TOPIC_ID, 5), (ZERO_UUID, 5), (b"\1" * 16, -1)):
        (fetched,) = asyncio.run(offsets.fetch(machine.state, "g", "events", topic_id, [0], False))
        assert fetched.offset == expected


def test_offsets_in_a_transaction_are_seen_after_its_end() -> None:
    machine = Machine()
    machine.commit("g", 5)
    state = machine.state
    for producer_id, partition in ((7, 0), (7, 1), (8, 1)):
        entry = OffsetEntry(50 + partition, 1, "", 1)
        replay.apply(state, records.OffsetChange("g", "events", partition, entry, producer_id), 10)
    assert machine.committed("g") == 5
    stable = asyncio.run(offsets.fetch(state, "g", "events", ZERO_UUID, [0, 1, 2], True))
    assert [offset.error for offset in stable] == [
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NONE,
    ]
    state.offsets.end_transaction(8, committed=False)
    assert machine.committed("g", 1) is None
    state.offsets.end_transaction(7, committed=True)
    assert (machine.committed("g"), machine.committed("g", 1)) == (50, 51)


def test_group_partition_is_javas() -> None:
    # Values of String.hashCode() as the JVM gives them.
    assert java_string_hash("") == 0
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert java_string_hash("Aa") == java_string_hash("BB") == 2112
    assert java_string_hash("\U0001f600") == 0xD83D * 31 + 0xDE00
    assert group_partition("polygenelubricants", 50) == 0
    assert group_partition("Aa", 50) == 12


def test_long_names_of_groups_are_not_remembered() -> None:
    """Whoever asks for groups of ever new names, 32 KiB long, must not fill the broker's memory with them."""
    name = "g" * 32_000
    reference_count = sys.getrefcount(name)
    assert group_partition(name, 50) == abs(java_string_hash(name)) % 50
    assert name.encode() in records.offset_tombstone(name, "events", 0).key
    assert sys.getrefcount(name) == reference_count
