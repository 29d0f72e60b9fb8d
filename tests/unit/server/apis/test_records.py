"""DeleteRecords, WriteTxnMarkers, ListOffsets, OffsetForLeaderEpoch, DescribeProducers and InitProducerId."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_services import Services

from pybroker.native.partition import PartitionPosition, PartitionState, ProducerState
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError


def test_records_are_deleted_per_partition() -> None:
    async def run() -> None:
        services = await Services().start()
        await services.create("__consumer_offsets")
        services.replicas.low_watermarks = {
            ("a", 0): 100,
            ("a", 1): KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE),
            ("b", 0): 7,
            ("__consumer_offsets", 0): 1,
        }
        internal = {"__consumer_offsets": {0: 1, 1: 1}, "__transaction_state": {0: 1}}
        asked = {"a": {0: 5, 1: 6, 2: 7}, **internal, "b": {0: 50}}
        topics = [
            m.DeleteRecordsRequest.DeleteRecordsTopic(
                name=name,
                partitions=[
                    m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in asked.items()
        ]
        answer = await services.call("delete_records", m.DeleteRecordsRequest(topics=topics, timeout_ms=700), 2)
        found = {
            (topic.name, row.partition_index): (row.error_code, row.low_watermark)
            for topic in answer.topics
            for row in topic.partitions
        }
        assert found == {
            ("a", 0): (0, 5),
            ("a", 1): (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
            ("a", 2): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("__consumer_offsets", 0): (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
            ("__consumer_offsets", 1): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("__transaction_state", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("b", 0): (0, 7),
        }
        assert services.replicas.timeouts_ms == {700}

    asyncio.run(run())


def test_a_partition_that_a_request_repeats_is_deleted_from_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the last offset that is named, as in Apache Kafka."""

    async def run() -> None:
        services = await Services().start()
        deleted: list[tuple[str, int, int]] = []

        async def delete(topic: str, partition: int, before_offset: int, timeout_ms: int) -> int:
            deleted.append((topic, partition, before_offset))
            return before_offset

        monkeypatch.setattr(services.replicas, "delete_records", delete)
        Topic, Partition = m.DeleteRecordsRequest.DeleteRecordsTopic, m.DeleteRecordsRequest.DeleteRecordsPartition
        topics = [
            Topic(name=name, partitions=[Partition(partition_index=index, offset=offset) for index, offset in asked])
            for name, asked in [("a", [(0, 9), (1, 2), (0, 7)]), ("b", [(0, 1)]), ("a", [(0, 5)])]
        ]
        answer = await services.call("delete_records", m.DeleteRecordsRequest(topics=topics), 2)
        assert deleted == [("a", 0, 5), ("a", 1, 2), ("b", 0, 1)]
        rows = [
            (topic.name, [(row.partition_index, row.low_watermark) for row in topic.partitions])
            for topic in answer.topics
        ]
        assert rows == [("a", [(0, 5), (1, 2)]), ("b", [(0, 1)])]

    asyncio.run(run())


def test_a_partition_that_a_request_repeats_gets_one_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        services = await Services().start()
        state = PartitionState(**dict.fromkeys(PartitionState._fields, 0))
        services.replicas.states = {("t", 0): state, ("t", 1): state}
        written: list[tuple[str, int]] = []

        async def append(topic: str, partition: int, batch: bytes, transaction_version: int) -> None:
            written.append((topic, partition))

        monkeypatch.setattr(services.replicas, "append_marker", append, raising=False)
        Topic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic
        topics = [Topic(name="t", partition_indexes=[0, 1, 0]), Topic(name="t", partition_indexes=[1])]
        markers = [
            m.WriteTxnMarkersRequest.WritableTxnMarker(producer_id=producer_id, producer_epoch=1, topics=topics)
            for producer_id in (7, 8)
        ]
        answer = await services.call("write_txn_markers", m.WriteTxnMarkersRequest(markers=markers), 1)
        assert written == [("t", 0), ("t", 1)] * 2, "each marker once in each"
        rows = [[(row.partition_index, row.error_code) for row in each.topics[0].partitions] for each in answer.markers]
        assert rows == [[(0, 0), (1, 0)]] * 2

    asyncio.run(run())


@pytest.mark.parametrize("replica_id", [-2, 2], ids=["debugging", "follower"])
def test_who_is_no_consumer_is_told_where_the_log_ends(replica_id: int) -> None:
    async def run() -> None:
        services = await Services().start()
        ends = {"log_start_offset": 10, "high_watermark": 20, "log_end_offset": 30, "leader_epoch": 4}
        state = PartitionState(**{**dict.fromkeys(PartitionState._fields, 0), **ends})
        services.replicas.epochs = {("t", 0): (4, 30), ("t", 1): (4, 30)}
        services.replicas.states = {("t", 0): state, ("t", 1): state}
        services.replicas.unsettled = {("t", 1)}

        async def asked(asking: int, partition: int, timestamp: int, epoch: int = 4) -> tuple[int, int]:
            wanted = m.ListOffsetsRequest.ListOffsetsPartition(
                partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
            )
            topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])
            request = m.ListOffsetsRequest(replica_id=asking, topics=[topic])
            row = (await services.call("list_offsets", request, 7)).topics[0].partitions[0]
            assert row.error_code or row.leader_epoch == 4
            return row.error_code, row.offset

        assert await asked(-1, 0, -1) == (0, 20)
        assert await asked(-1, 1, -1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        for partition in (0, 1):
            assert await asked(replica_id, partition, -1) == (0, 30)
            assert await asked(replica_id, partition, -2) == (0, 10)
        assert await asked(replica_id, 0, -1, epoch=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
        assert await asked(replica_id, 2, -1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)

    asyncio.run(run())


def test_a_request_has_one_look_up_by_time_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: list[int] = []
    most: list[int] = []

    async def look_up(_topic: str, partition: int, _timestamp_ms: int, _isolation: int) -> PartitionPosition:
        under_way.append(partition)
        most.append(len(under_way))
        await asyncio.sleep(0)
        under_way.remove(partition)
        return PartitionPosition(10 + partition, 5, 4)

    async def run() -> None:
        services = await Services().start()
        services.replicas.epochs = {("t", partition): (4, 30) for partition in range(20)}
        monkeypatch.setattr(services.replicas, "list_offset", look_up, raising=False)
        wanted = [
            m.ListOffsetsRequest.ListOffsetsPartition(partition_index=each, timestamp=5, current_leader_epoch=4)
            for each in range(20)
        ]
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=wanted)
        response = await services.call("list_offsets", m.ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
        assert [row.offset for row in response.topics[0].partitions] == [10 + each for each in range(20)]
        assert max(most) == 1

    asyncio.run(run())


def test_what_is_refused_at_once_costs_no_task() -> None:
    """A request may name two million partitions."""
    count = 5000

    async def run() -> None:
        services = await Services().start()
        made: list[str] = []
        loop = asyncio.get_running_loop()

        def make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
            made.append(repr(work))
            return asyncio.Task(work, loop=loop, **options)

        topic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=list(range(count)))
        marker = m.WriteTxnMarkersRequest.WritableTxnMarker(producer_id=-1, topics=[topic])
        rows = [
            m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=0) for index in range(count)
        ]
        deleted = m.DeleteRecordsRequest.DeleteRecordsTopic(name="__consumer_offsets", partitions=rows)
        loop.set_task_factory(make)
        markers = await services.call("write_txn_markers", m.WriteTxnMarkersRequest(markers=[marker]), 1)
        deletions = await services.call("delete_records", m.DeleteRecordsRequest(topics=[deleted]), 2)
        loop.set_task_factory(None)
        assert made == []
        answers = [*markers.markers[0].topics, *deletions.topics]
        assert [[row.partition_index for row in topic.partitions] for topic in answers] == [list(range(count))] * 2
        assert [{row.error_code for row in topic.partitions} for topic in answers] == [
            {ErrorCode.INVALID_REQUEST},
            {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        ]

    asyncio.run(run())


def test_ends_of_leader_epochs() -> None:
    async def run() -> None:
        services = await Services().start()
        services.replicas.epochs = {("t", 0): (3, 42)}

        async def asked(partition: int, current: int) -> Any:
            wanted = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=current, leader_epoch=3
            )
            topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[wanted])
            request = m.OffsetForLeaderEpochRequest(topics=[topic])
            return (await services.call("offset_for_leader_epoch", request, 4)).topics[0].partitions[0]

        row = await asked(0, -1)
        assert (row.error_code, row.partition, row.leader_epoch, row.end_offset) == (0, 0, 3, 42)
        row = await asked(0, 9)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert (await asked(5, -1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(run())


def test_producers_are_described() -> None:
    async def run() -> None:
        services = await Services().start()
        services.replicas.known_producers = {("t", 0): [ProducerState(4711, 1234, -1, 17, -1, 2)], ("t", 1): []}
        topics = [m.DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1, 2])]
        topics.append(m.DescribeProducersRequest.TopicRequest(name="a b", partition_indexes=[0]))
        answer = await services.call("describe_producers", m.DescribeProducersRequest(topics=topics), 0)
        first, second, third = answer.topics[0].partitions
        (producer,) = first.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (4711, 2, 17)
        assert (producer.last_timestamp, producer.coordinator_epoch) == (1234, -1)
        assert producer.current_txn_start_offset == -1
        assert (second.error_code, second.active_producers) == (0, [])
        assert third.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.topics[1].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    asyncio.run(run())


def _init(**fields: Any) -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 1, **fields})


def test_producer_ids_are_never_given_twice() -> None:
    async def run() -> None:
        services = await Services().start()
        count = 2500
        answers = await asyncio.gather(*(services.call("init_producer_id", _init(), 5) for _ in range(count)))
        none_yet = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        assert {(each.error_code, each.producer_id, each.producer_epoch) for each in answers} == {none_yet}
        answers = []
        while len(answers) < count:
            await services.producer_ids.settled()
            answers += [await services.call("init_producer_id", _init(), 5) for _ in range(100)]
        assert {(each.error_code, each.producer_epoch) for each in answers} == {(0, 0)}
        assert len({each.producer_id for each in answers}) == count
        kept = services.metadata.image.next_producer_id
        assert max(each.producer_id for each in answers) < kept, "no later broker may give them again"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "t"}, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_refused_producer_ids(fields: dict[str, Any], error: ErrorCode) -> None:
    async def run() -> None:
        services = await Services().start()
        answer = await services.call("init_producer_id", _init(**fields), 5)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)

    asyncio.run(run())


def test_a_client_that_is_early_may_try_again() -> None:
    async def run() -> None:
        services = Services()
        early = await services.call("init_producer_id", _init(), 5)
        assert (early.error_code, early.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        await services.producer_ids.settled()
        await services.start()
        again = await services.call("init_producer_id", _init(), 5)
        assert (again.error_code, again.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        await services.producer_ids.settled()
        assert (await services.call("init_producer_id", _init(), 5)).error_code == 0

    asyncio.run(run())
