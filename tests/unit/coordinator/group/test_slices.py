"""What is about thousands of offsets, groups or members: in slices of the loop, and never seen in part."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import scenario
from broker_double import BrokerDouble, image_with
from memory_writer import MemoryWriter

from pybroker import turns
from pybroker.coordinator.group.runtime import ShardStatus
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from tests.harness.look_counter import LookCounter

PARTITIONS = 3_000
TOPICS = 2_000
IMAGE = image_with(
    {scenario.TOPIC: (bytes(range(16)), PARTITIONS)}
    | {f"t{number}": (number.to_bytes(16, "big"), 1) for number in range(1, TOPICS + 1)}
)
WITHOUT_TOPICS = image_with({scenario.TOPIC: (bytes(range(16)), PARTITIONS)})


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(9):
            await test

    asyncio.run(bounded())


async def started(writer: MemoryWriter | None = None, **settings: Any) -> BrokerDouble:
    broker = BrokerDouble(IMAGE, writer or MemoryWriter(), **settings)
    await broker.start()
    return broker


def commit_of_partitions(group: str) -> Any:
    return scenario.commit(group, partitions=[(index, index, -1, None) for index in range(PARTITIONS)])


def commit_of_topics(group: str) -> Any:
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic
    return m.OffsetCommitRequest(
        group_id=group, topics=[topic(name=f"t{number}", partitions=[partition]) for number in range(1, TOPICS + 1)]
    )


def codes(answer: Any) -> set[int]:
    return {each.error_code for topic in answer.topics for each in topic.partitions}


async def seen_counts(broker: BrokerDouble, group: str) -> list[int]:
    """How many offsets of the group could be fetched at each moment, until it is cancelled."""
    counts: list[int] = []
    try:
        while True:
            fetched = await broker.groups.fetch_all_offsets(group, False)
            counts.append(sum(map(len, fetched.values())))
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        return counts


def test_a_commit_of_thousands_of_partitions() -> None:
    async def test() -> None:
        broker = await started()
        looks = LookCounter()
        assert codes(await broker.call("a", 8, 9, commit_of_partitions("g"))) == {0}
        # For entries, records and the batch, each 32.
        looks.check(3 * PARTITIONS // 32)
        fetched = await broker.groups.fetch_all_offsets("g", False)
        assert [each.offset for each in fetched[scenario.TOPIC]] == list(range(PARTITIONS))
        await broker.groups.stop()

    run(test())


def test_a_commit_of_thousands_of_topics_is_fetched_as_a_whole() -> None:
    async def test() -> None:
        broker = await started()
        looks = LookCounter()
        watching = asyncio.create_task(seen_counts(broker, "g"))
        assert codes(await broker.call("a", 8, 9, commit_of_topics("g"))) == {0}
        # Each is replayed by itself.
        looks.check(TOPICS)
        await asyncio.sleep(0.01)
        watching.cancel()
        assert set(await watching) == {0, TOPICS}
        await broker.groups.stop()

    run(test())


def test_offsets_of_topics_that_are_deleted_meanwhile_are_not_committed() -> None:
    async def test() -> None:
        broker = await started()
        looks = LookCounter()
        committing = asyncio.create_task(broker.call("a", 8, 9, commit_of_topics("g")))
        while looks.looks < TOPICS // 2:  # noqa: ASYNC110 - they come with each round
            await asyncio.sleep(0)
        broker.services.metadata.image = WITHOUT_TOPICS
        assert codes(await committing) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await broker.groups.fetch_all_offsets("g", False) == {}
        await broker.groups.stop()

    run(test())


def test_a_commit_is_refused_when_its_partition_is_led_elsewhere_in_the_end() -> None:
    async def test() -> None:
        broker = await started()
        looks = LookCounter()
        committing = asyncio.create_task(broker.call("a", 8, 9, commit_of_topics("g")))
        while looks.looks < TOPICS // 2:  # noqa: ASYNC110 - they come with each round
            await asyncio.sleep(0)
        await asyncio.gather(*(broker.groups.on_resignation(each) for each in list(broker.groups._shards)))
        assert codes(await committing) == {ErrorCode.NOT_COORDINATOR}
        await broker.groups.stop()

    run(test())


@pytest.mark.parametrize("is_elected_again", [False, True])
def test_offsets_are_not_read_of_a_partition_that_is_led_elsewhere_in_the_end(
    is_elected_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SLICE_NS", 0)  # on any machine the commit is replayed in several slices

    async def test() -> None:
        broker = await started()
        (shard,) = broker.groups._shards.values()
        committing = asyncio.create_task(broker.call("a", 8, 9, commit_of_topics("g")))
        while shard.appender._replaying is None:  # noqa: ASYNC110 - it comes in one of the next rounds
            await asyncio.sleep(0)
        fetches = [
            asyncio.create_task(broker.groups.fetch_all_offsets("g", False)),
            asyncio.create_task(broker.groups.fetch_offsets("g", "t1", bytes(16), [0], False)),
        ]
        await asyncio.sleep(0)
        assert not any(each.done() for each in fetches), "the test needs reads that wait"
        resigning = asyncio.create_task(broker.groups.on_resignation(0))
        if is_elected_again:
            broker.groups.on_election(0, 2)
        for each in await asyncio.gather(*fetches, return_exceptions=True):
            assert isinstance(each, KafkaError)
            assert each.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        await asyncio.gather(resigning, committing)
        await broker.groups.stop()

    run(test())


def test_a_partition_is_loaded_in_slices() -> None:
    async def test() -> None:
        writer = MemoryWriter()
        before = await started(writer)
        await before.call("a", 8, 9, commit_of_partitions("g"))
        await before.groups.stop()
        looks = LookCounter()
        broker = await started(writer)
        while any(one.status is ShardStatus.LOADING for one in broker.groups._shards.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        looks.check(PARTITIONS // 16)
        assert len((await broker.groups.fetch_all_offsets("g", False))[scenario.TOPIC]) == PARTITIONS
        await broker.groups.stop()

    run(test())


def test_thousands_of_offsets_and_groups_are_deleted_in_slices() -> None:
    async def test() -> None:
        broker = await started()
        groups = [f"g{number}" for number in range(500)]
        for group in groups:
            await broker.call("a", 8, 9, scenario.commit(group))
        await broker.call("a", 8, 9, commit_of_partitions("large"))
        looks = LookCounter()
        results = await broker.groups.delete_groups(["large", *groups])
        assert {each for _, each in results.items()} == {ErrorCode.NONE}
        looks.check(PARTITIONS // 32 + len(groups))
        assert await broker.groups.list_groups([], []) == []
        await broker.groups.stop()

    run(test())


def test_offsets_of_a_deleted_topic_are_forgotten_in_slices() -> None:
    async def test() -> None:
        broker = await started()
        groups = [f"g{number}" for number in range(500)]
        for group in groups:
            await broker.call("a", 8, 9, scenario.commit(group))
        await broker.call("a", 8, 9, commit_of_partitions("large"))
        looks = LookCounter()
        await broker.groups.on_topics_deleted([(scenario.TOPIC, bytes(range(16)))])
        looks.check(len(groups))
        assert all([await broker.groups.fetch_all_offsets(each, False) == {} for each in [*groups, "large"]])
        await broker.groups.stop()

    run(test())


def test_hundreds_of_parked_members_are_answered_in_slices_when_their_partition_goes() -> None:
    async def test() -> None:
        broker = await started(initial_rebalance_delay_ms=60_000)
        members = [(await broker.call("a", 11, 9, scenario.join("g"))).member_id for _ in range(300)]
        joins = [asyncio.create_task(broker.call("a", 11, 9, scenario.join("g", each))) for each in members]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(each.done() for each in joins)
        looks = LookCounter()
        await asyncio.gather(*(broker.groups.on_resignation(each) for each in list(broker.groups._shards)))
        looks.check(len(members))
        assert {(await each).error_code for each in joins} == {ErrorCode.NOT_COORDINATOR}
        await broker.groups.stop()

    run(test())
