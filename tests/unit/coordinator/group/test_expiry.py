"""How groups and their offsets end by themselves, and with their topics."""

from __future__ import annotations

import asyncio

import pytest
import scenario
from broker_double import BrokerDouble, image_with, settle
from coordinator_setup import (
    IMAGE,
    TOPIC_ID,
    commit_error,
    committed_offsets,
    run,
    started,
    with_many_offsets,
)

from pybroker.coordinator.group.model.group import ClassicGroup
from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC
from pybroker.coordinator.group.model.shard_state import ShardState
from pybroker.coordinator.group.requests import removal
from pybroker.coordinator.outcome import Part
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode


def test_groups_expire_by_themselves() -> None:
    async def test() -> None:
        broker = await started(offsets_retention_check_interval_ms=10)
        answers = await asyncio.gather(*(broker.call("a", 8, 9, scenario.commit(f"g{n}")) for n in range(700)))
        assert [commit_error(answer) for answer in answers] == [0] * 700
        assert len((await broker.call("a", 16, 5, m.ListGroupsRequest())).groups) == 700
        broker.clock.ahead_ms = 7 * 24 * 3600 * 1000
        while await broker.groups.list_groups([], []):  # noqa: ASYNC110 - bounded by `run`
            await asyncio.sleep(0.01)
        assert broker.writer.append_count < 20, "tombstones of many groups share batches"
        await broker.groups.stop()

    run(test())


def test_a_group_with_more_offsets_than_a_batch_holds_expires() -> None:
    async def test() -> None:
        broker = await with_many_offsets(offsets_retention_check_interval_ms=10)
        broker.clock.ahead_ms = 7 * 24 * 3600 * 1000
        while await broker.groups.list_groups([], []):  # noqa: ASYNC110 - bounded by `run`
            await asyncio.sleep(0.01)
        assert max(map(len, broker.writer.logs[OFFSETS_TOPIC, 0])) <= 2000
        await broker.groups.stop()
        again = BrokerDouble(IMAGE, broker.writer)
        await again.start()
        assert await again.groups.list_groups([], []) == []
        assert await again.groups.fetch_all_offsets("g", False) == {}
        await again.groups.stop()

    run(test())


@pytest.mark.parametrize("turns", [0, 100])
def test_what_is_committed_while_offsets_expire_stays(turns: int) -> None:
    """In the turn of the loop in which tombstones are made, or while the first batch of them is on its way."""

    async def test() -> None:
        broker = await with_many_offsets()
        broker.clock.ahead_ms = 7 * 24 * 3600 * 1000
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g", partitions=[(0, 5, 1, "")]))) == 0
        broker.writer.hold()
        expiring = asyncio.create_task(broker.groups.expire_offsets())
        for _ in range(turns):
            await asyncio.sleep(0)
        partitions = [(1, 6, 1, ""), (99, 7, 1, "")]
        committing = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g", partitions=partitions)))
        await settle()
        broker.writer.release()
        assert commit_error(await committing) == 0
        await expiring
        await broker.groups.expire_offsets()
        assert await committed_offsets(broker) == {0: 5, 1: 6, 99: 7}
        await broker.groups.stop()

    run(test())


@pytest.mark.parametrize("commits_first", [False, True])
def test_what_is_committed_for_a_new_topic_stays_while_offsets_of_the_deleted_one_go(commits_first: bool) -> None:
    async def test() -> None:
        broker = await with_many_offsets()
        broker.services.metadata.image = image_with({scenario.TOPIC: (b"\7" * 16, 100)})
        broker.writer.hold()
        commit = broker.call("a", 8, 9, scenario.commit("g", partitions=[(0, 6, 1, ""), (99, 7, 1, "")]))
        removal_of_offsets = broker.groups.on_topics_deleted([(scenario.TOPIC, TOPIC_ID)])
        tasks = []
        for each in (commit, removal_of_offsets) if commits_first else (removal_of_offsets, commit):
            tasks.append(asyncio.create_task(each))
            await settle()
        broker.writer.release()
        answers = await asyncio.gather(*tasks)
        assert commit_error(answers[0 if commits_first else 1]) == 0
        assert await committed_offsets(broker) == {0: 6, 99: 7}
        await broker.groups.stop()

    run(test())


def test_offsets_of_a_deleted_topic_go_in_as_few_batches_as_they_fit_into() -> None:
    async def test() -> None:
        broker = await with_many_offsets()
        before_count = broker.writer.append_count
        await broker.groups.on_topics_deleted([(scenario.TOPIC, TOPIC_ID)])
        assert await committed_offsets(broker) == {}
        assert broker.writer.append_count == before_count + 3
        assert max(map(len, broker.writer.logs[OFFSETS_TOPIC, 0])) <= 2000
        await broker.groups.stop()

    run(test())


def test_what_cannot_all_be_removed_keeps_its_group() -> None:
    async def test() -> None:
        broker = await with_many_offsets()
        broker.clock.ahead_ms = 7 * 24 * 3600 * 1000
        broker.writer.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        await broker.groups.expire_offsets()
        assert len(await broker.groups.list_groups([], [])) == 1
        broker.writer.fail_with = None
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == 0
        await broker.groups.stop()

    run(test())


def test_groups_expire_in_spite_of_a_failure_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_once(state: ShardState, group: ClassicGroup, max_batch_bytes: int) -> Part:
        monkeypatch.undo()
        raise RuntimeError("a defect")

    async def test() -> None:
        broker = await started(offsets_retention_check_interval_ms=10)
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == 0
        monkeypatch.setattr(removal, "expire_group", fail_once)
        broker.clock.ahead_ms = 7 * 24 * 3600 * 1000
        while await broker.groups.list_groups([], []):  # noqa: ASYNC110 - bounded by `run`
            await asyncio.sleep(0.01)
        await broker.groups.stop()

    run(test())
    assert "could not all be removed" in caplog.text
