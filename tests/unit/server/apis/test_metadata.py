"""Metadata of topics that do not exist: their creation is started, and the answer does not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from broker_services import Services

from pybroker.metadata.delta import empty_image
from pybroker.metadata.image import MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

OK, UNKNOWN, INVALID = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION


async def ask(services: Services, version: int, *names: str, may_create: bool = True) -> dict[str, ErrorCode]:
    """The error codes that the topics of these names are answered with."""
    topics = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)
    answer = await services.call("metadata", request, version)
    assert answer.throttle_time_ms == 0
    assert all(each.partitions or each.error_code for each in answer.topics)
    return {each.name: ErrorCode(each.error_code) for each in answer.topics}


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(50):
            await test

    asyncio.run(bounded())


@pytest.mark.parametrize("version", range(14))
def test_a_new_topic_is_unknown_at_first_and_there_at_the_next_request(version: int) -> None:
    async def test() -> None:
        services = await Services().start()
        before = services.metadata.operation_count
        assert await ask(services, version, "new") == {"new": UNKNOWN}
        assert await ask(services, version, "new") == {"new": UNKNOWN}, "under way"
        await services.topic_creation.finished()
        assert await ask(services, version, "new") == {"new": OK}
        assert services.metadata.operation_count == before + 1, "it is created once"

    run(test())


def test_a_topic_that_is_there_is_known_while_the_controller_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        services = await Services().start()
        may_answer = asyncio.Event()

        async def wait(*_: Any) -> m.CreateTopicsResponse:
            await may_answer.wait()
            return m.CreateTopicsResponse()

        with monkeypatch.context() as patch:
            patch.setattr(services.controller, "perform", wait)
            assert await ask(services, 9, "new") == {"new": UNKNOWN}
            await asyncio.sleep(0)
        await services.create("new")  # by somebody else
        assert "new" in services.topic_creation
        services.replicas.opening.add("new")
        assert await ask(services, 9, "new") == {"new": UNKNOWN}, "clients would produce to it in vain"
        services.replicas.opening.clear()
        assert await ask(services, 9, "new") == {"new": OK}
        may_answer.set()
        await services.topic_creation.finished()

    run(test())


def test_the_answer_never_waits() -> None:
    """The dispatcher finishes a handler that does not suspend at once, without a task."""

    async def test() -> None:
        services = await Services().start()
        asking = ask(services, 9, "new", "other")
        with pytest.raises(StopIteration):
            asking.send(None)
        await services.topic_creation.finished()

    run(test())


def test_one_request_for_topics_of_all_kinds() -> None:
    async def test() -> None:
        services = await Services().start()
        await services.create("there", "with.dot")
        names = ("there", "new", "a b", "", "..", "x" * 250, "with_dot", "__consumer_offsets", "new")
        expected = dict.fromkeys(names, INVALID) | {
            "there": OK,
            "new": UNKNOWN,
            "with_dot": UNKNOWN,
            "__consumer_offsets": UNKNOWN,
        }
        assert await ask(services, 9, *names) == expected
        await services.topic_creation.finished()
        assert await ask(services, 9, *names) == expected | {"new": OK, "__consumer_offsets": OK}
        assert "collides" in (services.topic_creation.failure("with_dot") or "")

    run(test())


@pytest.mark.parametrize("name", ["__transaction_state", "__share_group_state"])
def test_topics_of_other_coordinators_are_not_made(name: str) -> None:
    async def test() -> None:
        services = await Services().start()
        assert await ask(services, 9, name) == {name: UNKNOWN}
        await services.topic_creation.finished()
        assert await ask(services, 9, name) == {name: UNKNOWN}

    run(test())


@pytest.mark.parametrize(
    ("overrides", "may_create"), [(["auto.create.topics.enable=false"], True), ([], False)], ids=["broker", "client"]
)
def test_nothing_is_made_for_those_who_do_not_want_it(overrides: list[str], may_create: bool) -> None:
    async def test() -> None:
        services = await Services(overrides=overrides).start()
        for _ in range(2):
            answer = await ask(services, 9, "new", "a b", may_create=may_create)
            assert answer == {"new": UNKNOWN, "a b": INVALID}
            await services.topic_creation.finished()
        assert not services.metadata.image.topics.by_name

    run(test())


def test_a_topic_that_cannot_be_made_stays_unknown() -> None:
    async def test() -> None:
        services = await Services(overrides=["default.replication.factor=3"]).start()
        for _ in range(2):
            assert await ask(services, 9, "new") == {"new": UNKNOWN}
            await services.topic_creation.finished()
        assert "INVALID_REPLICATION_FACTOR" in (services.topic_creation.failure("new") or "")

    run(test())


def test_the_quota_of_the_client_bounds_what_it_makes() -> None:
    async def test() -> None:
        quota = m.ClientQuotaRecord(
            entity=[m.ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="client")],
            key="controller_mutation_rate",
            value=0.001,
            remove=False,
        )
        services = await Services((quota, 0), overrides=["controller.quota.window.num=2"]).start()
        for name in ("first", "second"):
            await ask(services, 9, name)
            await services.topic_creation.finished()
        assert await ask(services, 9, "first", "second") == {"first": OK, "second": UNKNOWN}
        assert "THROTTLING_QUOTA_EXCEEDED" in (services.topic_creation.failure("second") or "")

    run(test())


class Changing:
    """A controller that a new image of an empty cluster comes to after the first look."""

    def __init__(self, first: MetadataImage) -> None:
        self._images = iter([first])

    @property
    def image(self) -> MetadataImage:
        return next(self._images, empty_image("cluster-id"))


@pytest.mark.parametrize("asked", ["id", "name", "all"])
def test_the_whole_answer_is_of_one_image(asked: str) -> None:
    """Else it could name leaders that its brokers are without."""

    async def test() -> None:
        services = await Services().start()
        await services.create("there")
        image = services.metadata.image
        topic = m.MetadataRequest.MetadataRequestTopic(name="there")
        if asked == "id":
            topic = m.MetadataRequest.MetadataRequestTopic(name=None, topic_id=image.topics.by_name["there"].id)
        topics = None if asked == "all" else [topic]
        request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        services.metadata = Changing(image)  # type: ignore[assignment]  # a double
        services.topic_creation = ()  # type: ignore[assignment]  # nothing is under way
        answer = await services.call("metadata", request, 13)
        assert [(each.name, each.error_code) for each in answer.topics] == [("there", OK)]
        assert {each.partitions[0].leader_id for each in answer.topics} == {each.node_id for each in answer.brokers}

    run(test())
