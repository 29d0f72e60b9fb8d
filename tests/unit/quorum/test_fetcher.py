"""The metadata log, read from scripted controllers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted_controller import TIMEOUT_S, Quorum, ScriptedController, controllers, response

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.records import (
    SNAPSHOT_FOOTER,
    ControlRecord,
    VersionedRecord,
    encode_batch,
    encode_control_batch,
)
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import Record
from pybroker.quorum.errors import QuorumError
from pybroker.quorum.fetcher import FetcherSettings, MetadataFetcher
from pybroker.quorum.leader import LeaderFinder

FOOTER = ControlRecord(SNAPSHOT_FOOTER, m.SnapshotFooterRecord())
SETTINGS = FetcherSettings(5, "cluster", b"d" * 16, 10.0, 0.001, 1 << 20, 100)


class Follower:
    """A fetcher that runs, and what it has published."""

    def __init__(self, members: list[ScriptedController]) -> None:
        self.published: list[tuple[MetadataDelta, MetadataImage]] = []
        self.finder = LeaderFinder([each.address for each in members])
        self.fetcher = MetadataFetcher(SETTINGS, self.finder, lambda *args: self.published.append(args))
        self.running = asyncio.create_task(self.fetcher.run())

    async def until_topic(self, name: str) -> MetadataImage:
        await self.fetcher.until(lambda image: name in image.topics.by_name)
        return self.fetcher.image


@asynccontextmanager
async def following(members: list[ScriptedController]) -> AsyncIterator[Follower]:
    follower = Follower(members)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield follower
    finally:
        follower.running.cancel()
        await asyncio.gather(follower.running, return_exceptions=True)


def topic(name: str) -> m.TopicRecord:
    return m.TopicRecord(name=name, topic_id=name.encode().ljust(16))


def test_what_is_committed_is_published_and_nothing_else() -> None:
    async def run() -> None:
        async with controllers() as members:
            quorum = Quorum(*members)
            quorum.append(topic("one"))
            async with following(members) as follower:
                await follower.fetcher.caught_up()
                assert list(follower.fetcher.image.topics.by_name) == ["one"]
                assert follower.fetcher.image.provenance.end_offset == 1
                quorum.append(topic("two"), is_committed=False)
                quorum.append(topic("three"), is_committed=False)
                quorum.wake()
                # A fetch behind both of them says that they are here.
                await members[0].until_fetched_from(3)
                assert list(follower.fetcher.image.topics.by_name) == ["one"]
                quorum.commit()
                image = await follower.until_topic("three")
                assert list(image.topics.by_name) == ["one", "two", "three"]
                assert [list(delta.topics_changed) for delta, _ in follower.published][1:] == [
                    [topic("two").topic_id, topic("three").topic_id]
                ]

    asyncio.run(run())


def test_the_leader_is_found_by_asking_and_followed_when_it_moves() -> None:
    async def run() -> None:
        async with controllers(3) as members:
            quorum = Quorum(*members)
            quorum.elect(2, 4)
            quorum.append(topic("one"))
            async with following(members) as follower:
                await follower.until_topic("one")
                leader = follower.finder.leader
                assert leader is not None
                assert (leader.id, leader.epoch) == (2, 4)
                # Dead, and the others do not know it yet.
                await members[2].stop()
                quorum.append(topic("two"))
                asked = len(members[0].seen)
                await members[0].until(lambda: len(members[0].seen) >= asked + 3)
                assert "two" not in follower.fetcher.image.topics.by_name
                quorum.elect(1, 5)
                await follower.until_topic("two")
                leader = follower.finder.leader
                assert leader is not None
                assert (leader.id, leader.epoch) == (1, 5)

    asyncio.run(run())


def test_what_a_dead_leader_had_not_committed_is_forgotten() -> None:
    async def run() -> None:
        async with controllers(2) as members:
            quorum = Quorum(*members)
            quorum.append(topic("one"))
            async with following(members) as follower:
                await follower.until_topic("one")
                quorum.append(topic("lost"), topic("too"), is_committed=False)
                quorum.wake()
                await members[0].until_fetched_from(3)
                quorum.truncate(1)
                quorum.elect(1, 2)
                quorum.append(topic("kept"))
                image = await follower.until_topic("kept")
                assert list(image.topics.by_name) == ["one", "kept"]
                assert image.provenance.end_offset == 2

    asyncio.run(run())


def test_a_transaction_counts_when_it_has_ended() -> None:
    async def run() -> None:
        async with controllers() as members:
            quorum = Quorum(*members)
            quorum.append(topic("one"))
            async with following(members) as follower:
                await follower.until_topic("one")
                quorum.append(m.BeginTransactionRecord(name="t"), topic("two"))
                quorum.append(topic("three"))
                await members[0].until_fetched_from(4)
                assert list(follower.fetcher.image.topics.by_name) == ["one"]
                caught_up = asyncio.create_task(follower.fetcher.caught_up())
                await asyncio.sleep(0)
                assert not caught_up.done()
                quorum.append(m.EndTransactionRecord())
                await caught_up
                assert list(follower.fetcher.image.topics.by_name) == ["one", "two", "three"]
                quorum.append(m.BeginTransactionRecord(name="u"), topic("four"))
                quorum.append(m.AbortTransactionRecord(reason="r"))
                quorum.append(topic("five"))
                assert "four" not in (await follower.until_topic("five")).topics.by_name

    asyncio.run(run())


class Snapshots:
    """A controller's snapshot 50-3 of twenty topics, which it points to, and its answers to FetchSnapshot. `spoil` has
    functions that change one answer each, the first one the first."""

    def __init__(self, quorum: Quorum, member: ScriptedController) -> None:
        records = [VersionedRecord(topic(f"topic-{number}"), 0) for number in range(20)]
        self.data = encode_batch(0, 3, 1000, records[:10]) + encode_batch(10, 3, 1000, records[10:])
        self.data += encode_control_batch(20, 3, 1000, [FOOTER])
        self.spoil: list[Callable[[Any], None]] = []
        self._follow = member.on[m.FetchRequest]
        member.on[m.FetchRequest] = self._point
        member.on[m.FetchSnapshotRequest] = self._fetch
        quorum.end_offset = 50
        quorum.append(topic("after"))

    def _point(self, request: m.FetchRequest) -> Any:
        if request.topics[0].partitions[0].fetch_offset >= 50:
            return self._follow(request)
        row = m.FetchResponse.PartitionData(partition_index=0, high_watermark=51)
        row.snapshot_id = m.FetchResponse.SnapshotId(end_offset=50, epoch=3)
        return response(row)

    def _fetch(self, request: m.FetchSnapshotRequest) -> m.FetchSnapshotResponse:
        wanted = request.topics[0].partitions[0]
        assert (wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch) == (50, 3)
        row = m.FetchSnapshotResponse.PartitionSnapshot(
            index=0,
            snapshot_id=m.FetchSnapshotResponse.SnapshotId(end_offset=50, epoch=3),
            size=len(self.data),
            position=wanted.position,
            unaligned_records=self.data[wanted.position : wanted.position + request.max_bytes],
        )
        answer = m.FetchSnapshotResponse(
            topics=[m.FetchSnapshotResponse.TopicSnapshot(name="__cluster_metadata", partitions=[row])]
        )
        if self.spoil:
            self.spoil.pop(0)(answer)
        return answer


def test_a_snapshot_takes_the_place_of_what_was_known() -> None:
    async def run() -> None:
        async with controllers() as members:
            quorum = Quorum(*members)
            quorum.append(topic("old"), topic("topic-1"))
            async with following(members) as follower:
                await follower.until_topic("old")
                Snapshots(quorum, members[0])
                image = await follower.until_topic("after")
                assert "old" not in image.topics.by_name
                assert len(image.topics.by_name) == 21
                changed = {key: value for delta, _ in follower.published for key, value in delta.topics_changed.items()}
                assert changed[topic("old").topic_id] is None
                assert len(members[0].seen_of(m.FetchSnapshotRequest)) > 5, "in parts"

    asyncio.run(run())


def _says_nothing(answer: Any) -> None:
    answer.topics = []


def _is_empty(answer: Any) -> None:
    row = answer.topics[0].partitions[0]
    row.size, row.unaligned_records = 0, b""


def _ends_early(answer: Any) -> None:
    """After the first of three batches, as if that were all."""
    row = answer.topics[0].partitions[0]
    row.unaligned_records = encode_batch(0, 3, 1000, [VersionedRecord(topic("topic-0"), 0)])
    row.size = len(row.unaligned_records)


def _is_another(answer: Any) -> None:
    """Whole, but older."""
    row = answer.topics[0].partitions[0]
    row.snapshot_id.end_offset = 49
    row.unaligned_records = encode_control_batch(0, 3, 1000, [FOOTER])
    row.size = len(row.unaligned_records)


def _is_elsewhere(answer: Any) -> None:
    """The end, where the beginning was asked for."""
    row = answer.topics[0].partitions[0]
    row.unaligned_records = encode_control_batch(20, 3, 1000, [FOOTER])
    row.position = row.size - len(row.unaligned_records)
    row.size = len(row.unaligned_records)


def _is_damaged(answer: Any) -> None:
    row = answer.topics[0].partitions[0]
    row.unaligned_records = bytes([*row.unaligned_records[:-1], row.unaligned_records[-1] ^ 1])


@pytest.mark.parametrize(
    "spoil",
    [_says_nothing, _is_empty, _ends_early, _is_another, _is_elsewhere, _is_damaged],
    ids=lambda each: each.__name__,
)
def test_a_snapshot_that_is_not_the_whole_one_changes_nothing_and_is_fetched_again(
    spoil: Callable[[Any], None],
) -> None:
    """What it lacks would count for deleted."""

    async def run() -> None:
        async with controllers() as members:
            quorum = Quorum(*members)
            quorum.append(topic("topic-1"))
            async with following(members) as follower:
                await follower.until_topic("topic-1")
                snapshots = Snapshots(quorum, members[0])
                snapshots.spoil.append(spoil)
                image = await follower.until_topic("after")
                assert not snapshots.spoil
                assert len(image.topics.by_name) == 21
                assert all("topic-1" in each.topics.by_name for _, each in follower.published)

    asyncio.run(run())


def test_a_record_that_is_not_known_ends_it() -> None:
    async def run() -> None:
        async with controllers() as members:
            quorum = Quorum(*members)
            quorum.append(topic("one"))
            unknown = record_batch.build(1, 1, [Record(None, bytes([1, 99, 0]))], timestamp_ms=0)
            quorum.append_bytes(unknown, 1)
            async with following(members) as follower:
                with pytest.raises(MetadataError, match="type 99"):
                    await follower.running

    asyncio.run(run())


@pytest.mark.parametrize("place", [8, 16, 17, 60, -1], ids=["length", "magic", "crc", "count", "record"])
def test_bytes_that_were_damaged_on_their_way_are_fetched_again(place: int) -> None:
    async def run() -> None:
        async with controllers() as members:
            quorum = Quorum(*members)
            quorum.append(topic("one"))
            quorum.append(topic("two"))
            quorum.append(topic("three"))
            whole = members[0].on[m.FetchRequest]
            damaged_count = 0

            async def damage_once(request: m.FetchRequest) -> m.FetchResponse:
                nonlocal damaged_count
                answer: m.FetchResponse = await whole(request)
                row = answer.responses[0].partitions[0]
                if row.records and damaged_count == 0:
                    damaged_count += 1
                    data = bytearray(row.records)
                    second = 12 + int.from_bytes(data[8:12], "big")
                    third = second + 12 + int.from_bytes(data[second + 8 : second + 12], "big")
                    data[second + place if place >= 0 else third - 1] ^= 0x80
                    row.records = bytes(data)
                return answer

            members[0].on[m.FetchRequest] = damage_once
            async with following(members) as follower:
                image = await follower.until_topic("three")
                assert list(image.topics.by_name) == ["one", "two", "three"]
                assert damaged_count == 1

    asyncio.run(run())


@pytest.mark.parametrize("address", [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("no..name", 9093), ("x" * 70, 9093)])
def test_a_leader_whose_address_is_none_is_asked_for_again(address: tuple[str, int]) -> None:
    async def run() -> None:
        async with controllers() as members:
            quorum = Quorum(*members)
            quorum.append(topic("one"))
            whole = members[0].on[m.FetchRequest]

            async def misname_once(request: m.FetchRequest) -> m.FetchResponse:
                answer: m.FetchResponse = await whole(request)
                if answer.node_endpoints and len(members[0].seen) == 1:
                    answer.node_endpoints[0].host, answer.node_endpoints[0].port = address
                return answer

            members[0].on[m.FetchRequest] = misname_once
            async with following(members) as follower:
                await follower.until_topic("one")

    asyncio.run(run())


def test_controllers_of_another_cluster_end_it() -> None:
    async def run() -> None:
        async with controllers() as members:
            members[0].on[m.FetchRequest] = lambda _: m.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
            async with following(members) as follower:
                with pytest.raises(QuorumError, match="belongs to another cluster than this broker"):
                    await follower.running

    asyncio.run(run())


def test_a_controller_that_answers_with_garbage_is_left_for_another() -> None:
    async def run() -> None:
        async with controllers(2) as members:
            quorum = Quorum(*members)
            quorum.elect(1, 1)
            quorum.append(topic("one"))
            members[0].on[m.FetchRequest] = lambda _: m.FetchResponse()
            async with following(members) as follower:
                await follower.until_topic("one")

    asyncio.run(run())
