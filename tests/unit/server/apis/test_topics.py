"""CreateTopics, CreatePartitions and DeleteTopics: over the controller, answered when this broker follows."""

from __future__ import annotations

import asyncio

import pytest
from broker_services import Services

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode


def test_topics_are_made_grown_and_deleted() -> None:
    async def run() -> None:
        services = await Services().start()
        await services.create("t", partitions=2)
        assert services.replicas.settle_count == 1
        topic = services.metadata.image.topics.by_name["t"]
        assert len(topic.partitions) == 2
        wanted = [m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)]
        grown = await services.call("create_partitions", m.CreatePartitionsRequest(topics=wanted, timeout_ms=1000), 3)
        assert [(row.name, row.error_code) for row in grown.results] == [("t", 0)]
        assert services.replicas.settle_count == 2
        assert len(services.metadata.image.topics.by_name["t"].partitions) == 3
        by_id = [m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic.id)]
        deleted = await services.call("delete_topics", m.DeleteTopicsRequest(topics=by_id, timeout_ms=1000), 6)
        assert [(row.name, row.error_code) for row in deleted.responses] == [("t", 0)]
        assert services.replicas.settle_count == 3
        assert not services.metadata.image.topics.by_name

    asyncio.run(run())


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_disabled(version: int, error: ErrorCode) -> None:
    async def run() -> None:
        services = await Services(overrides=["delete.topic.enable=false"]).start()
        await services.create("t")
        response = await services.call("delete_topics", m.DeleteTopicsRequest(topic_names=["t"]), version)
        assert [row.error_code for row in response.responses] == [error]
        assert "t" in services.metadata.image.topics.by_name

    asyncio.run(run())
