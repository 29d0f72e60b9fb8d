"""What is served, and what has to wait, while a partition of `__consumer_offsets` is loaded, and when it cannot be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import scenario
from broker_double import BrokerDouble, settle
from coordinator_setup import IMAGE, TOPIC_ID, commit_error, committed_offsets, run, started, with_many_offsets

from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError


def test_committed_offsets_can_be_fetched_while_what_is_behind_them_is_not_committed() -> None:
    """As under min.insync.replicas, or behind a follower in the ISR that does not fetch."""

    async def test() -> None:
        first = await started()
        await first.call("a", 8, 9, scenario.commit("g", partitions=[(0, 10, 1, ""), (1, 11, 1, "")]))
        committed = first.writer.ends[OFFSETS_TOPIC, 0]
        await first.call("a", 8, 9, scenario.commit("g", partitions=[(1, 21, 1, ""), (2, 22, 1, "")]))
        await first.groups.stop()
        first.writer.committed = committed

        second = BrokerDouble(IMAGE, first.writer, offsets_commit_timeout_ms=5_000)
        second.groups.start()
        second.groups.on_election(0, 2)
        fetch = scenario.fetch("g", [(scenario.TOPIC, [0, 1, 2])])
        await asyncio.sleep(4)
        early = await second.call("a", 9, 8, fetch)
        assert early.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it is about to be committed"
        await asyncio.sleep(2)

        async def fetched(**fields: bool) -> list[tuple[int, int]]:
            answer = await second.call("a", 9, 8, scenario.fetch("g", [(scenario.TOPIC, [0, 1, 2])], **fields))
            return [(each.committed_offset, each.error_code) for each in answer.groups[0].topics[0].partitions]

        assert await fetched() == [(10, 0), (11, 0), (-1, 0)], "what is not committed is not told"
        unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await fetched(require_stable=True) == [(10, 0), unstable, unstable]
        assert await committed_offsets(second) == {0: 10, 1: 11}
        assert [each.group_id for each in await second.groups.list_groups([], [])] == ["g"]
        assert second.groups.describe_group("g", 6).group_state == "Empty"
        assert (await second.groups.statistics(10)).offset_count == 2
        # What would be behind it in the log has to wait.
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert commit_error(await second.call("a", 8, 9, scenario.commit("g"))) == loading
        assert (await second.call("a", 11, 9, scenario.join("g"))).error_code == loading
        deleted = await second.call("a", 42, 2, m.DeleteGroupsRequest(groups_names=["g"]))
        assert deleted.results[0].error_code == loading
        assert (await second.call("a", 12, 4, scenario.heartbeat("g", 1, "x"))).error_code == ErrorCode.NONE

        first.writer.committed = 2**63 - 1
        await asyncio.sleep(1)
        assert await fetched(require_stable=True) == [(10, 0), (21, 0), (22, 0)]
        assert commit_error(await second.call("a", 8, 9, scenario.commit("g"))) == 0
        await second.groups.stop()

    run(test())


def test_offsets_of_a_topic_that_is_deleted_during_a_load_go_after_it() -> None:
    async def test() -> None:
        first = await with_many_offsets()
        await first.groups.stop()
        first.writer.committed = 0
        second = BrokerDouble(IMAGE, first.writer)
        second.groups.start()
        second.groups.on_election(0, 2)
        removing = asyncio.create_task(second.groups.on_topics_deleted([(scenario.TOPIC, TOPIC_ID)]))
        await settle()
        assert not second.groups.is_active(0)
        first.writer.committed = 2**63 - 1
        await removing
        await asyncio.sleep(1)
        assert await committed_offsets(second) == {}
        await second.groups.stop()

    run(test())


@pytest.mark.parametrize(
    ("code", "is_tried_again"), [(ErrorCode.KAFKA_STORAGE_ERROR, True), (ErrorCode.CORRUPT_MESSAGE, False)]
)
def test_a_read_that_fails_for_once_does_not_end_a_coordinator(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, is_tried_again: bool
) -> None:
    """As without file handles for a moment: nobody takes the partition for offline, so nobody opens it again."""
    read_count = 0

    async def test() -> None:
        before = await with_many_offsets()
        await before.groups.stop()
        broker = BrokerDouble(IMAGE, before.writer, offsets_load_buffer_bytes=1)
        broker.groups.start()
        read = broker.writer.read

        async def fail_once(*place: Any, **limit: bool) -> bytes:
            nonlocal read_count
            read_count += 1
            if read_count == 3:
                raise KafkaError(code)
            return await read(*place, **limit)

        monkeypatch.setattr(broker.writer, "read", fail_once)
        broker.groups.on_election(0, 1)
        await settle()
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(10)
        assert broker.groups.is_active(0) == is_tried_again
        if not is_tried_again:
            # By another election it is.
            broker.groups.on_election(0, 2)
            await settle()
        assert await committed_offsets(broker) == dict.fromkeys(range(100), 1)
        await broker.groups.stop()

    run(test())
