"""What is appended together, what clients are told of it, and what becomes of it when a partition moves."""

from __future__ import annotations

import asyncio

import pytest
import scenario
from broker_double import settle
from coordinator_setup import (
    commit_error,
    commit_held_back,
    committed_offsets,
    run,
    started,
)

from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC
from pybroker.coordinator.group.requests import offsets
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode


def test_requests_of_one_turn_share_a_batch() -> None:
    async def test() -> None:
        broker = await started()
        answers = await asyncio.gather(
            *(broker.call("a", 8, 9, scenario.commit(f"group {number}")) for number in range(200))
        )
        assert [commit_error(answer) for answer in answers] == [0] * 200
        assert broker.writer.append_count == 1
        await broker.groups.stop()

    run(test())


def test_what_gathers_during_an_append_goes_next() -> None:
    async def test() -> None:
        broker = await started()
        broker.writer.hold()
        first = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g")))
        await settle()
        others = [asyncio.create_task(broker.call("a", 8, 9, scenario.commit(f"g{n}"))) for n in range(50)]
        await settle()
        assert not first.done()
        fetched = await broker.call("a", 9, 8, scenario.fetch("g", None))
        assert fetched.groups[0].topics == [], "nothing is seen before it is committed"
        others[0].cancel()
        broker.writer.release()
        await asyncio.gather(first, *others[1:])
        assert broker.writer.append_count == 2
        await broker.groups.stop()

    run(test())


def test_large_requests_are_split_over_batches_but_never_in_themselves() -> None:
    async def test() -> None:
        broker = await started()
        broker.writer.max_message_bytes = 4_096  # the topic's: the broker's message.max.bytes says nothing here
        partitions = [(index, index, 1, "x" * 20) for index in range(30)]
        answers = await asyncio.gather(
            *(broker.call("a", 8, 9, scenario.commit(f"g{n}", partitions=partitions)) for n in range(10))
        )
        assert all(commit_error(answer) == 0 for answer in answers)
        batches = list(record_batch.parse(b"".join(broker.writer.logs[OFFSETS_TOPIC, 0])))
        assert len(batches) > 1
        assert all(batch.size_bytes <= 4_096 and len(batch.records) % 30 == 0 for batch in batches)
        await broker.groups.stop()

    run(test())


def test_failed_append_is_answered_and_changes_nothing() -> None:
    async def test() -> None:
        broker = await started()
        for failure, answer in (
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ):
            broker.writer.fail_with = failure
            assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == answer
            joined = await broker.call("a", 11, 9, scenario.join("new", group_instance_id="i"))
            assert joined.error_code == answer
        broker.writer.fail_with = None
        listed = await broker.call("a", 16, 5, m.ListGroupsRequest())
        assert listed.groups == []
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == 0
        await broker.groups.stop()

    run(test())


def test_clients_do_not_wait_longer_than_the_commit_timeout() -> None:
    async def test() -> None:
        broker = await started(offsets_commit_timeout_ms=30)
        broker.writer.hold()
        answer = await broker.call("a", 8, 9, scenario.commit("g"))
        assert commit_error(answer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.writer.release()
        await broker.groups.stop()

    run(test())


def test_moving_away_answers_parked_requests() -> None:
    async def test() -> None:
        broker = await started(initial_rebalance_delay_ms=60_000)
        parked = asyncio.create_task(broker.call("a", 11, 9, scenario.join("g", group_instance_id="i")))
        await settle()
        await broker.groups.on_resignation(0)
        assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
        assert (await broker.call("a", 12, 4, scenario.heartbeat("g", 1, "x"))).error_code == ErrorCode.NOT_COORDINATOR
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == ErrorCode.NOT_COORDINATOR
        await broker.groups.stop()

    run(test())


def test_a_stop_waits_for_appends() -> None:
    async def test() -> None:
        broker = await started()
        broker.writer.hold()
        answer = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g")))
        await settle()
        stopping = asyncio.create_task(broker.groups.stop())
        await settle()
        assert not stopping.done()
        broker.writer.release()
        await stopping
        assert commit_error(await answer) == ErrorCode.NONE

    run(test())


def test_a_stop_fails_appends_that_get_nowhere() -> None:
    async def test() -> None:
        broker = await started()
        broker.writer.hold()
        answers = []
        for _ in range(2):
            answers.append(asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g"))))
            await settle()
        await broker.groups.stop()
        assert [commit_error(await each) for each in answers] == [ErrorCode.NOT_COORDINATOR] * 2
        assert broker.writer.append_count == 0

    run(test())


def test_another_epoch_of_the_same_leader_loses_nothing_that_is_on_its_way() -> None:
    async def test() -> None:
        broker = await started()
        joined = await broker.call("a", 11, 3, scenario.join("g"))
        first, second = await commit_held_back(broker)
        broker.groups.on_election(0, 2)
        await settle()
        assert broker.groups.is_active(0)
        broker.writer.release()
        assert [commit_error(await first), commit_error(await second)] == [0, 0]
        assert await committed_offsets(broker, "h") == {0: 1, 1: 2}
        assert (await broker.call("a", 12, 4, scenario.heartbeat("g", 1, joined.member_id))).error_code == 0
        broker.groups.on_election(0, 1)  # an older one says nothing
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("h"))) == 0
        assert broker.writer.logs[OFFSETS_TOPIC, 0][-1][12:16] == (2).to_bytes(4, "big")
        await broker.groups.stop()

    run(test())


def test_what_the_shard_of_before_still_appends_is_loaded() -> None:
    """The partition moved away and came back: the append under way failed by that, and what was queued went through."""

    async def test() -> None:
        broker = await started()
        first, second = await commit_held_back(broker)
        resigning = asyncio.create_task(broker.groups.on_resignation(0))
        broker.groups.on_election(0, 3)
        await settle()
        assert not broker.groups.is_active(0)
        refused = await broker.call("a", 8, 9, scenario.commit("h"))
        assert commit_error(refused) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.writer.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert commit_error(await first) == ErrorCode.NOT_COORDINATOR
        assert commit_error(await second) == ErrorCode.NONE
        await resigning
        await broker.active()
        assert await committed_offsets(broker, "h") == {1: 2}
        await broker.groups.stop()

    run(test())


def test_elections_while_the_shard_of_before_is_not_closed() -> None:
    async def test() -> None:
        broker = await started()
        held_back = await commit_held_back(broker)
        resigning = [asyncio.create_task(broker.groups.on_resignation(0))]
        broker.groups.on_election(0, 3)
        broker.groups.on_election(0, 4)
        await settle()
        resigning.append(asyncio.create_task(broker.groups.on_resignation(0)))
        await settle()
        # What waited to be loaded is gone, but what it waited for is not: the next one waits for that.
        assert [each.done() for each in resigning] == [False, True]
        refused = await broker.call("a", 8, 9, scenario.commit("h"))
        assert commit_error(refused) == ErrorCode.NOT_COORDINATOR
        broker.groups.on_election(0, 6)
        broker.groups.on_election(0, 5)  # an older one says nothing
        await settle()
        assert not broker.groups.is_active(0)
        broker.writer.release()
        assert [commit_error(await each) for each in held_back] == [ErrorCode.NONE] * 2
        await asyncio.gather(*resigning)
        await broker.active()
        assert await committed_offsets(broker, "h") == {0: 1, 1: 2}
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("h"))) == 0
        assert broker.writer.logs[OFFSETS_TOPIC, 0][-1][12:16] == (6).to_bytes(4, "big")
        await broker.groups.stop()

    run(test())


def test_a_commit_that_takes_too_long_does_not_outlive_its_group() -> None:
    async def test() -> None:
        broker = await started(offsets_commit_timeout_ms=100)
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == 0
        broker.writer.hold()
        late = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g", partitions=[(7, 5, 1, "")])))
        await asyncio.sleep(0.05)
        deleting = asyncio.create_task(broker.call("a", 42, 2, m.DeleteGroupsRequest(groups_names=["g"])))
        assert commit_error(await late) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(0.01)
        broker.writer.release()
        assert [row.error_code for row in (await deleting).results] == [0]
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == 0
        partitions = [
            offset.partition for offset in (await broker.groups.fetch_all_offsets("g", False))[scenario.TOPIC]
        ]
        assert partitions == [0]
        await broker.groups.stop()

    run(test())


def test_what_no_batch_holds_is_refused_before_records_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        broker = await started()
        partitions = [(index, number, 1, "") for number in range(3) for index in range(100)]
        # The last offset of a partition that is named more than once counts, and these fit.
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g", partitions=partitions))) == 0
        assert await committed_offsets(broker) == dict.fromkeys(range(100), 2)
        broker.writer.max_message_bytes = 100 * 32 - 1
        monkeypatch.setattr(offsets, "_entries", None)
        answer = await broker.call("a", 8, 9, scenario.commit("g2", partitions=partitions))
        assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.UNKNOWN_SERVER_ERROR}
        await broker.groups.stop()

    run(test())
