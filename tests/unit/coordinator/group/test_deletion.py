"""DeleteGroups beside commits that are under way: what it waits for, how long, and what it leaves alone."""

from __future__ import annotations

import asyncio

import scenario
from broker_double import settle
from coordinator_setup import commit_error, committed_offsets, run, started

from pybroker.coordinator.group.partition import group_partition
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode


def test_delete_does_not_wait_for_ever_for_a_commit_in_flight() -> None:
    """It is told to try again after offsets.commit.timeout.ms, and the group is as it was."""

    async def test() -> None:
        broker = await started(offsets_commit_timeout_ms=5_000)
        await broker.call("a", 8, 9, scenario.commit("g"))
        await broker.call("a", 8, 9, scenario.commit("h"))
        broker.writer.hold()
        racing = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g", partitions=[(5, 5, 1, "")])))
        await settle()
        began_s = asyncio.get_running_loop().time()
        deleted = await broker.call("b", 42, 2, m.DeleteGroupsRequest(groups_names=["g", "h", "no such group"]))
        assert asyncio.get_running_loop().time() - began_s < 6
        not_available = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert {each.group_id: each.error_code for each in deleted.results} == {
            "g": not_available,
            "h": not_available,
            "no such group": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        broker.writer.release()
        assert commit_error(await racing) == not_available
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g", partitions=[(1, 1, 1, "")]))) == 0
        assert await committed_offsets(broker) == {0: 42, 1: 1, 5: 5}
        assert await committed_offsets(broker, "h") == {0: 42}
        await broker.groups.stop()

    run(test())


def test_delete_ends_at_once_when_the_partition_moves_away() -> None:
    async def test() -> None:
        broker = await started()
        await broker.call("a", 8, 9, scenario.commit("g"))
        broker.writer.hold()
        racing = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g")))
        await settle()
        deleting = asyncio.create_task(broker.call("b", 42, 2, m.DeleteGroupsRequest(groups_names=["g"])))
        await settle()
        resigning = asyncio.create_task(broker.groups.on_resignation(0))
        assert (await deleting).results[0].error_code == ErrorCode.NOT_COORDINATOR
        assert not racing.done()
        broker.writer.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert commit_error(await racing) == ErrorCode.NOT_COORDINATOR
        await resigning
        await broker.groups.stop()

    run(test())


def test_delete_leaves_the_groups_of_a_partition_that_has_moved_away_and_back() -> None:
    """While it waits for a commit in another partition. What is loaded again is not what was found without members."""

    async def test() -> None:
        broker = await started(offsets_topic_partition_count=2)
        broker.groups.on_election(1, 1)
        await settle()
        first, second = (next(f"g{n}" for n in range(9) if group_partition(f"g{n}", 2) == index) for index in range(2))
        for group in (first, second):
            assert commit_error(await broker.call("a", 8, 9, scenario.commit(group))) == 0
        broker.writer.hold()
        racing = asyncio.create_task(broker.call("a", 8, 9, scenario.commit(first)))
        await settle()
        deleting = asyncio.create_task(broker.call("b", 42, 2, m.DeleteGroupsRequest(groups_names=[first, second])))
        await settle()
        await broker.groups.on_resignation(1)
        broker.groups.on_election(1, 3)
        await settle()
        assert broker.groups.is_active(1)
        broker.writer.release()
        assert commit_error(await racing) == 0
        assert {each.group_id: each.error_code for each in (await deleting).results} == {
            first: 0,
            second: ErrorCode.NOT_COORDINATOR,
        }
        assert await committed_offsets(broker, second) == {0: 42}
        await broker.groups.stop()

    run(test())


def test_no_version_tells_more_than_the_code_of_a_classic_group() -> None:
    """From version 3 on there is a message, which Kafka gives to GROUP_DELETION_FAILED alone."""

    async def test() -> None:
        broker = await started()
        for version in range(4):
            await broker.call("a", 8, 9, scenario.commit("g"))
            deleted = await broker.call("b", 42, version, m.DeleteGroupsRequest(groups_names=["g", "none"]))
            rows = {each.group_id: (each.error_code, each.error_message) for each in deleted.results}
            assert rows == {"g": (ErrorCode.NONE, None), "none": (ErrorCode.GROUP_ID_NOT_FOUND, None)}
        await broker.groups.stop()

    run(test())
