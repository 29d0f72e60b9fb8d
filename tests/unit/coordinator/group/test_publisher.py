"""What a new metadata image means for groups, and where clients find their coordinator."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import scenario
from broker_double import BrokerDouble, image_with, settle
from coordinator_setup import (
    IMAGE,
    NO_DELTA,
    TOPIC_ID,
    commit_error,
    committed_offsets,
    run,
    started,
)
from memory_writer import MemoryWriter

from pybroker.config.broker import BrokerConfig
from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC
from pybroker.coordinator.group.partition import group_partition
from pybroker.coordinator.group.publisher import GroupCoordinatorPublisher
from pybroker.metadata.image import BrokerRegistration, ClusterImage, Endpoint, MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import RequestContext
from pybroker.server.apis.groups import find_coordinator
from pybroker.server.auto_topic_creation import AutoTopicCreation


def _broker_registration() -> BrokerRegistration:
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0), Endpoint("OTHER", "example", 9093, 0))
    return BrokerRegistration(1, 0, bytes(16), endpoints, (), None, False, False, (), None)


def _image(**topics: tuple[bytes, int]) -> MetadataImage:
    return image_with(topics).replace(cluster=ClusterImage(brokers={1: _broker_registration()}))


def test_publisher_loads_unloads_and_forgets_deleted_topics() -> None:
    async def test() -> None:
        offsets_id = b"\2" * 16
        broker = BrokerDouble(IMAGE, MemoryWriter())
        broker.groups.start()
        publisher = GroupCoordinatorPublisher(broker.groups, 1)
        publisher.publish(NO_DELTA, _image(**{scenario.TOPIC: (TOPIC_ID, 1), OFFSETS_TOPIC: (offsets_id, 1)}))
        await broker.active()
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == 0
        publisher.publish(NO_DELTA, _image(**{OFFSETS_TOPIC: (offsets_id, 1)}))
        await settle()
        assert (await broker.call("a", 9, 8, scenario.fetch("g", None))).groups[0].topics == []
        GroupCoordinatorPublisher(broker.groups, 2).publish(NO_DELTA, _image(**{OFFSETS_TOPIC: (offsets_id, 1)}))
        assert broker.groups.is_active(0)
        publisher.publish(NO_DELTA, _image())
        await settle()
        assert not broker.groups.is_active(0)
        await broker.groups.stop()

    run(test())


def test_an_offsets_topic_that_was_made_anew_has_none_of_the_old_groups() -> None:
    """Deleted and made again between two images: only the topic's id tells."""

    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter())
        broker.groups.start()
        publisher = GroupCoordinatorPublisher(broker.groups, 1)
        publisher.publish(NO_DELTA, _image(**{OFFSETS_TOPIC: (b"\2" * 16, 1)}))
        await broker.active()
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == 0
        assert await committed_offsets(broker) == {0: 42}
        broker.writer.logs.clear()
        broker.writer.ends.clear()
        publisher.publish(NO_DELTA, _image(**{OFFSETS_TOPIC: (b"\3" * 16, 1)}))
        await broker.active()
        assert await committed_offsets(broker) == {}
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("h"))) == 0
        await broker.groups.stop()

    run(test())


def test_publisher_loads_again_what_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(topic: str, partition: int, offset: int, max_bytes: int, *, to_log_end: bool) -> bytes:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    async def test() -> None:
        before = await started()
        assert commit_error(await before.call("a", 8, 9, scenario.commit("g"))) == 0
        await before.groups.stop()
        broker = BrokerDouble(IMAGE, before.writer)
        broker.groups.start()
        publisher = GroupCoordinatorPublisher(broker.groups, 1)
        monkeypatch.setattr(broker.writer, "read", fail)
        publisher.publish(NO_DELTA, _image(**{OFFSETS_TOPIC: (b"\2" * 16, 1)}))
        await settle()
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == ErrorCode.NOT_COORDINATOR
        publisher.on_reopened([(scenario.TOPIC, 0), (OFFSETS_TOPIC, 1)])
        await settle()
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == ErrorCode.NOT_COORDINATOR
        monkeypatch.undo()
        publisher.on_reopened([(OFFSETS_TOPIC, 0)])
        await broker.active()
        assert await committed_offsets(broker) == {0: 42}
        await broker.groups.stop()

    run(test())


def test_the_offsets_topic_says_which_partition_a_group_belongs_to() -> None:
    """Not the setting; and not partitions that are added while the broker runs, as in Apache Kafka."""

    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter(), offsets_topic_partition_count=7)
        broker.groups.start()
        publisher = GroupCoordinatorPublisher(broker.groups, 1)
        names = [f"group {number}" for number in range(100)]

        def is_reckoned_with(count: int) -> bool:
            return all(broker.groups.partition_for(each) == group_partition(each, count) for each in names)

        assert is_reckoned_with(7)
        for topic_id, partition_count, expected in [(b"\2", 4, 4), (b"\2", 9, 4), (b"\2", 9, 4), (b"\3", 9, 9)]:
            publisher.publish(NO_DELTA, _image(**{OFFSETS_TOPIC: (topic_id * 16, partition_count)}))
            assert is_reckoned_with(expected)
        publisher.publish(NO_DELTA, _image())
        assert is_reckoned_with(9)
        await settle()
        await broker.groups.stop()

    run(test())


def _with_creation(broker: BrokerDouble, perform: Any) -> RequestContext:
    """Gives the broker a controller that does what `perform` does; the context of a request on listener OTHER."""
    services = broker.services
    services.config = BrokerConfig.load(None)
    services.replicas = SimpleNamespace(is_opening=lambda _: False)
    controller: Any = SimpleNamespace(perform=perform, newest_version=lambda request: request.MAX_VERSION)
    services.topic_creation = AutoTopicCreation(controller, lambda: services.config, lambda: services.metadata.image)
    return RequestContext(10, 4, 1, None, "127.0.0.1", "OTHER", "User:ANONYMOUS", 1)


def test_find_coordinator_starts_the_topic_and_then_names_the_leader() -> None:
    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter())
        broker.services.metadata = metadata = SimpleNamespace(image=_image())
        created: list[m.CreateTopicsRequest] = []

        async def perform(request: m.CreateTopicsRequest, version: int, origin: Origin) -> m.CreateTopicsResponse:
            assert m.CreateTopicsRequest.decode(version, request.encode(version))[0] == request
            assert origin == Origin(), "no client's quota bounds it"
            created.append(request)
            metadata.image = _image(**{OFFSETS_TOPIC: (b"\2" * 16, request.topics[0].num_partitions)})
            return m.CreateTopicsResponse()

        context = _with_creation(broker, perform)

        async def found(version: int) -> list[tuple[int, int, str, int]]:
            request = m.FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
            response = await find_coordinator.handle(broker.services, context._replace(api_version=version), request)
            answers = [response] if version < 4 else response.coordinators
            return [(answer.error_code, answer.node_id, answer.host, answer.port) for answer in answers]

        for version in range(7):
            metadata.image = _image()
            for _ in range(2):
                none_yet = await found(version)
                assert none_yet == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)] * len(none_yet)
            await broker.services.topic_creation.finished()
            there = await found(version)
            assert there == [(0, 1, "example", 9093)] * len(there)
        assert len(created) == 7
        topic = created[0].topics[0]
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (OFFSETS_TOPIC, 50, 1)
        assert {config.name: config.value for config in topic.configs} == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        request = m.FindCoordinatorRequest(coordinator_keys=["g"])
        response = await find_coordinator.handle(broker.services, context._replace(listener="NOWHERE"), request)
        assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["transaction"])
        response = await find_coordinator.handle(broker.services, context, request)
        assert response.coordinators[0].error_code == ErrorCode.INVALID_REQUEST

    run(test())


def test_why_the_topic_cannot_be_made_is_told_to_clients_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter())
        row = m.CreateTopicsResponse.CreatableTopicResult(
            name=OFFSETS_TOPIC, error_code=ErrorCode.INVALID_CONFIG, error_message="segment.bytes is too small"
        )

        async def perform(*_: Any) -> m.CreateTopicsResponse:
            return m.CreateTopicsResponse(topics=[row])

        broker.services.metadata = SimpleNamespace(image=_image())
        context = _with_creation(broker, perform)
        messages: list[str] = []
        for _ in range(3):
            request = m.FindCoordinatorRequest(coordinator_keys=["g", "h"])
            for answer in (await find_coordinator.handle(broker.services, context, request)).coordinators:
                assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                messages.append(answer.error_message or "")
            await broker.services.topic_creation.finished()
        assert ["INVALID_CONFIG segment.bytes is too small" in each for each in messages] == [False] * 2 + [True] * 4

    run(test())
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_creation_that_cannot_begin_is_not_told_to_be_under_way() -> None:
    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter())
        broker.services.metadata = SimpleNamespace(image=_image())
        context = _with_creation(broker, None)
        broker.services.topic_creation = SimpleNamespace(begin=lambda *_: False, failure=lambda _: None)
        request = m.FindCoordinatorRequest(coordinator_keys=["g"])
        answer = (await find_coordinator.handle(broker.services, context, request)).coordinators[0]
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "could not begin" in (answer.error_message or "")

    run(test())


def test_the_coordinator_is_known_while_the_creation_of_its_topic_is_not_answered() -> None:
    async def test() -> None:
        broker = BrokerDouble(IMAGE, MemoryWriter())
        broker.services.metadata = metadata = SimpleNamespace(image=_image())
        may_answer = asyncio.Event()

        async def perform(*_: Any) -> m.CreateTopicsResponse:
            await may_answer.wait()
            return m.CreateTopicsResponse()

        context = _with_creation(broker, perform)

        async def code() -> int:
            request = m.FindCoordinatorRequest(coordinator_keys=["g"])
            return (await find_coordinator.handle(broker.services, context, request)).coordinators[0].error_code

        assert await code() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        metadata.image = _image(**{OFFSETS_TOPIC: (b"\2" * 16, 1)})  # another broker's request
        broker.services.replicas.is_opening = lambda topic: topic.name == OFFSETS_TOPIC
        assert await code() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.services.replicas.is_opening = lambda _: False
        assert await code() == 0
        may_answer.set()
        await broker.services.topic_creation.finished()

    run(test())
