"""DescribeTopicPartitions: pages, cursors, and what is told of partitions nobody serves."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_services import LISTENER, Services

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

Cursor = m.DescribeTopicPartitionsRequest.Cursor


async def _describe(services: Services, limit: int, cursor: Any = None, names: tuple[str, ...] = ()) -> Any:
    topics = [m.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    begin = None if cursor is None else Cursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)
    request = m.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=begin)
    return await services.call("describe_topic_partitions", request, 0)


def test_pages_together_hold_every_partition_once() -> None:
    async def run(limit: int) -> None:
        services = await Services().start()
        await services.create("b", partitions=5)
        await services.create("a", partitions=3)
        await services.create("c")
        seen, cursor = [], None
        while True:
            page = await _describe(services, limit, cursor)
            rows = [(topic.name, row.partition_index) for topic in page.topics for row in topic.partitions]
            assert 0 < len(rows) <= limit
            seen += rows
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [("a", index) for index in range(3)] + [("b", index) for index in range(5)] + [("c", 0)]

    for limit in range(1, 11):
        asyncio.run(run(limit))


def test_the_setting_bounds_a_page() -> None:
    async def run() -> None:
        services = await Services(overrides=["max.request.partition.size.limit=2"]).start()
        await services.create("t", partitions=5)
        page = await _describe(services, 1000)
        assert len(page.topics[0].partitions) == 2
        assert (page.next_cursor.topic_name, page.next_cursor.partition_index) == ("t", 2)

    asyncio.run(run())


def test_topics_that_are_not_there() -> None:
    async def run() -> None:
        services = await Services().start()
        response = await _describe(services, 10, names=("absent", "", "__consumer_offsets"))
        assert [(row.name, row.error_code, row.is_internal) for row in response.topics] == [
            ("", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
            ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
            ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        ]

    asyncio.run(run())


def test_replicas_elsewhere() -> None:
    async def run() -> None:
        topic_id = b"t" * 16
        partition = m.PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[8, 9],
            isr=[9],
            leader=9,
            leader_epoch=6,
            partition_epoch=6,
            directories=[b"\x08" * 16, b"\x09" * 16],
            eligible_leader_replicas=[8],
            last_known_elr=[8],
        )
        services = await Services(
            (m.TopicRecord(name="t", topic_id=topic_id), 0),
            (partition, 2),
            (_broker(9, fenced=True), 4),
        ).start()
        (topic,) = (await _describe(services, 10)).topics
        (row,) = topic.partitions
        assert (row.error_code, row.leader_id, row.leader_epoch) == (0, -1, 6)
        assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([8, 9], [9], [8, 9])
        assert (row.eligible_leader_replicas, row.last_known_elr) == ([8], [8])

    asyncio.run(run())


def _broker(number: int, *, fenced: bool) -> m.RegisterBrokerRecord:
    endpoint = m.RegisterBrokerRecord.BrokerEndpoint(name=LISTENER, host="h", port=1, security_protocol=0)
    return m.RegisterBrokerRecord(
        broker_id=number, broker_epoch=1, end_points=[endpoint], rack=None, fenced=fenced, log_dirs=[b"\x09" * 16]
    )
