"""Topics that clients use: their creation is started, and nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import empty_image
from pybroker.metadata.errors import MetadataLogError
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.errors import ErrorCode, VersionNotTaken
from pybroker.server.auto_topic_creation import MOST_TOPICS, AutoTopicCreation

ASKER = Origin("User:ANONYMOUS", "10.0.0.1", "asker")


class Controller:
    """Stands for `ServedController`: answers with `outcome` when `may_answer` is set."""

    def __init__(self, outcome: ErrorCode | Exception = ErrorCode.NONE) -> None:
        self.outcome = outcome
        self.may_answer = asyncio.Event()
        self.asked: list[tuple[list[str], Origin]] = []

    def newest_version(self, request: m.CreateTopicsRequest) -> int:
        return request.MAX_VERSION

    async def perform(self, request: m.CreateTopicsRequest, version: int, origin: Origin) -> m.CreateTopicsResponse:
        assert version == request.MAX_VERSION
        names = [each.name for each in request.topics]
        self.asked.append((names, origin))
        await self.may_answer.wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        row = m.CreateTopicsResponse.CreatableTopicResult
        return m.CreateTopicsResponse(
            topics=[row(name=name, error_code=self.outcome, error_message="the reason") for name in names]
        )


def creation_of(controller: Any) -> AutoTopicCreation:
    config, image = BrokerConfig.load(None), empty_image("c")
    return AutoTopicCreation(controller, lambda: config, lambda: image)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_topic_is_asked_for_once_while_it_is_under_way() -> None:
    async def run() -> None:
        controller = Controller()
        creation = creation_of(controller)
        creation.begin(["a", "b"], ASKER)
        creation.begin(["b", "c"], Origin())
        creation.begin(["a"], ASKER)
        await turns()
        assert controller.asked == [(["a", "b"], ASKER), (["c"], Origin())]
        assert all(name in creation for name in "abc")
        controller.may_answer.set()
        await creation.finished()
        assert not any(name in creation for name in "abc")
        creation.begin(["a"], ASKER)
        await creation.finished()
        assert len(controller.asked) == 3, "it may have been deleted since"

    asyncio.run(run())


@pytest.mark.parametrize("exists", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_a_topic_that_is_there_has_not_failed(exists: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        controller = Controller(exists)
        controller.may_answer.set()
        creation = creation_of(controller)
        creation.begin(["a"], ASKER)
        await creation.finished()
        assert creation.failure("a") is None

    asyncio.run(run())
    assert not caplog.records


def test_a_failure_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        controller = Controller(ErrorCode.INVALID_REPLICATION_FACTOR)
        controller.may_answer.set()
        creation = creation_of(controller)
        for _ in range(3):
            creation.begin(["a", "__consumer_offsets"], ASKER)
            await creation.finished()
            assert creation.failure("a") == "INVALID_REPLICATION_FACTOR the reason"
        assert len(controller.asked) == 3
        controller.outcome = ErrorCode.NONE
        creation.begin(["a"], ASKER)
        await creation.finished()
        assert creation.failure("a") is None
        assert creation.failure("__consumer_offsets") is not None

    asyncio.run(run())
    assert [(each.levelno, "__consumer_offsets" in each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, False),
        (logging.ERROR, True),
    ]


def test_no_more_than_a_controller_takes_are_under_way(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        controller = Controller()
        creation = creation_of(controller)
        assert creation.begin([f"t{number}" for number in range(MOST_TOPICS - 1)], ASKER)
        assert not creation.begin(["x", "y"], ASKER)
        assert "x" in creation and "y" not in creation, "as many as there is room for"
        for _ in range(3):
            assert not creation.begin(["y"], ASKER)
        assert "y" not in creation
        await turns()
        controller.may_answer.set()
        await creation.finished()
        assert creation.begin(["y"], ASKER)
        assert "y" in creation, "there is room again"
        await creation.finished()
        assert not creation.begin([f"t{number}" for number in range(MOST_TOPICS + 1)], ASKER)
        assert "t0" in creation and f"t{MOST_TOPICS}" not in creation
        await creation.finished()
        assert [len(names) for names, _ in controller.asked] == [MOST_TOPICS - 1, 1, 1, MOST_TOPICS]

    asyncio.run(run())
    # Once for each time that there was no room, however often clients ask.
    assert [each.levelname for each in caplog.records] == ["WARNING"] * 2
    assert caplog.records[0].getMessage().startswith("1 topics that a client asked for are not created yet")
    assert f"and {MOST_TOPICS - 1} others were under way" in caplog.records[0].getMessage()


def test_topics_of_clients_do_not_keep_groups_from_theirs() -> None:
    async def run() -> None:
        controller = Controller()
        creation = creation_of(controller)
        creation.begin([f"t{number}" for number in range(MOST_TOPICS)], ASKER)
        assert creation.begin(["__consumer_offsets"], Origin())
        assert "__consumer_offsets" in creation
        controller.may_answer.set()
        await creation.finished()
        # It is among the first of many, and no request has more than a controller takes.
        assert not creation.begin([*(f"t{number}" for number in range(MOST_TOPICS)), "__consumer_offsets"], ASKER)
        assert "__consumer_offsets" in creation
        await creation.finished()
        assert [len(names) for names, _ in controller.asked] == [MOST_TOPICS, 1, MOST_TOPICS]

    asyncio.run(run())


def test_a_metadata_log_that_fails_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        controller = Controller(MetadataLogError("no disk"))
        controller.may_answer.set()
        creation = creation_of(controller)
        creation.begin(["a"], ASKER)
        await creation.finished()
        assert "a" not in creation

    asyncio.run(run())
    assert ["no disk" in each.getMessage() for each in caplog.records] == [True]


def test_a_controller_that_takes_no_such_version_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    """An older one became active after the version was chosen."""

    async def run() -> None:
        controller = Controller(VersionNotTaken("the active controller does not take CreateTopics version 7"))
        controller.may_answer.set()
        creation = creation_of(controller)
        for _ in range(2):
            creation.begin(["a", "__consumer_offsets"], ASKER)
            await creation.finished()
            assert creation.failure("__consumer_offsets") == str(controller.outcome)
            assert "a" not in creation
        controller.outcome = ErrorCode.NONE
        creation.begin(["a", "__consumer_offsets"], ASKER)
        await creation.finished()
        assert creation.failure("__consumer_offsets") is None

    asyncio.run(run())
    (record,) = caplog.records
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert record.getMessage().endswith("CreateTopics version 7")


def test_a_defect_is_logged_and_leaves_nothing_under_way(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        controller = Controller(RuntimeError("a defect"))
        controller.may_answer.set()
        creation = creation_of(controller)
        creation.begin(["a"], ASKER)
        await creation.finished()
        assert "a" not in creation

    asyncio.run(run())
    assert [each.exc_info is not None for each in caplog.records] == [True]


def test_the_end_takes_what_is_under_way_along() -> None:
    async def run() -> None:
        creation = creation_of(Controller())
        creation.begin(["a"], ASKER)
        await turns()
        async with asyncio.timeout(50):
            await creation.close()
        assert "a" not in creation

    asyncio.run(run())


def test_nothing_begins_after_the_end() -> None:
    """Requests are served for a while longer, and the controller may be gone by then."""

    async def run() -> None:
        controller = Controller()
        creation = creation_of(controller)
        creation.begin(["a"], ASKER)
        await turns()
        closing = asyncio.create_task(creation.close())
        await asyncio.sleep(0)
        creation.begin(["b"], ASKER)
        await closing
        creation.begin(["c"], ASKER)
        await turns()
        assert [names for names, _ in controller.asked] == [["a"]]
        assert not any(name in creation for name in "abc")

    asyncio.run(run())


def test_the_reasons_of_failures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.server.auto_topic_creation._FAILURES_MAX", 2)

    async def run() -> None:
        controller = Controller(ErrorCode.INVALID_TOPIC_EXCEPTION)
        controller.may_answer.set()
        creation = creation_of(controller)
        for name in "abc":
            creation.begin([name], ASKER)
            await creation.finished()
        assert [creation.failure(name) is None for name in "abc"] == [True, False, False]

    asyncio.run(run())
