"""The asyncio driver: batching, loading, moving away, failures, time-outs, deletion, the metadata publisher."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
import scenario
import virtual_time
from broker_double import BrokerDouble, image_with, settle
from memory_writer import MemoryWriter

from pybroker.config.broker import BrokerConfig
from pybroker.coordinator.group import offsets, removal, shard
from pybroker.coordinator.group.group import ClassicGroup
from pybroker.coordinator.group.partition import group_partition
from pybroker.coordinator.group.publisher import GroupCoordinatorPublisher
from pybroker.coordinator.group.settings import OFFSETS_TOPIC, GroupSettings
from pybroker.coordinator.group.shard_state import ShardState
from pybroker.coordinator.outcome import Outcome, Part
from pybroker.coordinator.timer import TimerKey
from pybroker.metadata.image import BrokerRegistration, ClusterImage, Endpoint, MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.envelope import Origin
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import RequestContext
from pybroker.server.apis import find_coordinator
from pybroker.server.auto_topic_creation import AutoTopicCreation

TOPIC_ID = bytes(range(16))
NO_DELTA: Any = None
IMAGE = image_with({scenario.TOPIC: (TOPIC_ID, 100)})


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    virtual_time.run(bounded())


async def started(writer: MemoryWriter | None = None, **settings: Any) -> BrokerDouble:
    broker = BrokerDouble(IMAGE, writer or MemoryWriter(), **settings)
    await broker.start()
    return broker


def commit_error(response: m.OffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code


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


def test_restart_finds_groups_and_offsets_again() -> None:
    async def test() -> None:
        first = await started()
        joined = await first.call("a", 11, 3, scenario.join("g"))
        member = joined.member_id
        await first.call("a", 14, 5, scenario.sync("g", 1, member, {member: b"mine"}))
        for offset in range(3_000):
            if offset % 100 == 0:
                await asyncio.sleep(0)
            answer = asyncio.create_task(
                first.call("a", 8, 9, scenario.commit(f"h{offset % 7}", partitions=[(offset % 9, offset, 1, "m" * 40)]))
            )
        assert commit_error(await answer) == 0
        await first.groups.stop()

        second = BrokerDouble(IMAGE, first.writer)
        second.groups.start()
        second.groups.on_election(0, 2)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert commit_error(await second.call("a", 8, 9, scenario.commit("g"))) == loading
        assert (await second.call("a", 16, 5, m.ListGroupsRequest())).error_code == loading
        assert (await second.call("a", 12, 4, scenario.heartbeat("g", 1, member))).error_code == 0
        assert (await second.call("a", 9, 8, scenario.fetch("g", None))).groups[0].error_code == loading
        await second.active()
        described = await second.call("a", 15, 5, m.DescribeGroupsRequest(groups=["g"]))
        assert described.groups[0].group_state == "Stable"
        assert described.groups[0].members[0].member_assignment == b"mine"
        assert (await second.call("a", 12, 4, scenario.heartbeat("g", 1, member))).error_code == 0
        fetched = await second.call("a", 9, 8, scenario.fetch("h3", None))
        found = {
            partition.partition_index: partition.committed_offset
            for partition in fetched.groups[0].topics[0].partitions
        }
        assert found == {
            index: max(offset for offset in range(3_000) if offset % 7 == 3 and offset % 9 == index)
            for index in range(9)
        }
        await second.groups.stop()

    run(test())


def test_damaged_partition_is_not_served() -> None:
    async def test() -> None:
        writer = MemoryWriter()
        damaged = record_batch.build(0, 0, [record_batch.Record(b"\0\1", b"\0\4short")], timestamp_ms=1)
        writer.put(OFFSETS_TOPIC, 0, damaged)
        broker = BrokerDouble(IMAGE, writer)
        broker.groups.start()
        broker.groups.on_election(0, 1)
        await settle()
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == ErrorCode.NOT_COORDINATOR
        await broker.groups.stop()

    run(test())


def test_records_of_other_group_types_and_markers_are_passed_over() -> None:
    async def test() -> None:
        writer = MemoryWriter()
        key = m.ConsumerGroupMetadataKey(group_id="modern").encode(0)
        records = [record_batch.Record(b"\0\3" + key, b"\0\0" + m.ConsumerGroupMetadataValue(epoch=1).encode(0))]
        writer.put(OFFSETS_TOPIC, 0, record_batch.build(0, 0, records, timestamp_ms=1))
        newer = [record_batch.Record(b"\x03\xe8x", b"\0\0")]
        writer.put(OFFSETS_TOPIC, 0, record_batch.build(0, 0, newer, timestamp_ms=1))
        for producer_id, marker in ((7, 1), (8, 0)):
            commit = m.OffsetCommitKey(group="g", topic=scenario.TOPIC, partition=producer_id)
            value = m.OffsetCommitValue(offset=70, metadata="", commit_timestamp=1)
            record = record_batch.Record(b"\0\1" + commit.encode(0), b"\0\4" + value.encode(4))
            batch = record_batch.build(
                0,
                0,
                [record],
                timestamp_ms=1,
                transactional=True,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
            )
            writer.put(OFFSETS_TOPIC, 0, batch)
            end = record_batch.Record(b"\0\0" + marker.to_bytes(2, "big"), b"\0\0\0\0\0\0")
            batch = record_batch.build(
                0, 0, [end], timestamp_ms=1, transactional=True, control=True, producer_id=producer_id, producer_epoch=0
            )
            writer.put(OFFSETS_TOPIC, 0, batch)
        broker = await started(writer)
        fetched = await broker.call("a", 9, 8, scenario.fetch("g", [(scenario.TOPIC, [7, 8])], require_stable=True))
        assert [p.committed_offset for p in fetched.groups[0].topics[0].partitions] == [70, -1]
        await broker.groups.stop()

    run(test())


def test_delete_waits_for_commits_in_flight() -> None:
    async def test() -> None:
        broker = await started()
        await broker.call("a", 8, 9, scenario.commit("g"))
        broker.writer.hold()
        racing = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g", partitions=[(5, 5, 1, "")])))
        await settle()
        deleting = asyncio.create_task(broker.call("b", 42, 2, m.DeleteGroupsRequest(groups_names=["g"])))
        await settle()
        late = await broker.call("a", 8, 9, scenario.commit("g"))
        assert commit_error(late) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.writer.release()
        assert commit_error(await racing) == 0
        assert (await deleting).results[0].error_code == 0
        fetched = await broker.call("a", 9, 8, scenario.fetch("g", None))
        assert fetched.groups[0].topics == []
        assert (await broker.call("a", 16, 5, m.ListGroupsRequest())).groups == []
        await broker.groups.stop()

    run(test())


def test_cancelled_delete_leaves_the_group_as_it_was() -> None:
    async def test() -> None:
        broker = await started()
        await broker.call("a", 8, 9, scenario.commit("g"))
        broker.writer.hold()
        racing = asyncio.create_task(broker.call("a", 8, 9, scenario.commit("g", partitions=[(5, 5, 1, "")])))
        await settle()
        deleting = asyncio.create_task(broker.call("b", 42, 2, m.DeleteGroupsRequest(groups_names=["g"])))
        await settle()
        deleting.cancel()
        await asyncio.wait([deleting])
        broker.writer.release()
        await racing
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g"))) == 0
        await broker.groups.stop()

    run(test())


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


async def with_many_offsets(**settings: Any) -> BrokerDouble:
    """Offset 1 of a hundred partitions is committed in group g: more than fit into a batch."""
    broker = await started(**settings)
    broker.writer.max_message_bytes = 2000
    for first in range(0, 100, 10):
        partitions = [(index, 1, 1, "") for index in range(first, first + 10)]
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g", partitions=partitions))) == 0
    return broker


async def committed_offsets(broker: BrokerDouble, group: str = "g") -> dict[int, int]:
    found = (await broker.groups.fetch_all_offsets(group, False)).get(scenario.TOPIC, [])
    return {offset.partition: offset.offset for offset in found}


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


async def commit_held_back(broker: BrokerDouble) -> list[asyncio.Task[m.OffsetCommitResponse]]:
    """Offset n + 1 of partition n in group h: the first one's batch is on its way, the second one's waits for it."""
    broker.writer.hold()
    tasks = []
    for index in range(2):
        request = scenario.commit("h", partitions=[(index, index + 1, 1, "")])
        tasks.append(asyncio.create_task(broker.call("a", 8, 9, request)))
        await settle()
    return tasks


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


def test_a_stop_does_not_wait_for_a_load_that_waits() -> None:
    async def test() -> None:
        broker = await started()
        first, _ = await commit_held_back(broker)
        resigning = asyncio.create_task(broker.groups.on_resignation(0))
        broker.groups.on_election(0, 3)
        await broker.groups.stop()
        assert not resigning.done()
        broker.writer.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await resigning
        assert commit_error(await first) == ErrorCode.NOT_COORDINATOR

    run(test())


def test_a_member_that_names_a_protocol_twice_holds_nobody_up() -> None:
    async def test() -> None:
        broker = await started()
        twice = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"") for _ in range(2)]
        first = await broker.call("a", 11, 3, scenario.join("g"))
        joining = asyncio.create_task(broker.call("b", 11, 3, scenario.join("g", protocols=twice)))
        await settle()
        again = await broker.call("a", 11, 3, scenario.join("g", first.member_id))
        second = await joining
        assert (again.error_code, second.error_code) == (0, 0)
        assert again.generation_id == second.generation_id == 2
        assert second.protocol_name == "range"
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


def test_after_a_stop_no_partition_is_loaded() -> None:
    async def test() -> None:
        broker = await started()
        await broker.groups.stop()
        broker.groups.on_election(0, 2)
        await settle()
        assert not broker.groups.is_active(0)

    run(test())


def test_answers_that_are_ready_do_not_suspend() -> None:
    async def test() -> None:
        broker = await started()
        ready = (
            (9, 8, scenario.fetch("g", None)),
            (11, 9, scenario.join("g")),
            (12, 4, scenario.heartbeat("g", 1, "x")),
            (13, 5, scenario.leave("g", ("x", None))),
            (14, 5, scenario.sync("g", 1, "x")),
            (15, 6, m.DescribeGroupsRequest(groups=["g"])),
            (16, 5, m.ListGroupsRequest()),
            (47, 0, m.OffsetDeleteRequest(group_id="g")),
        )
        for api_key, version, request in ready:
            call = broker.call("a", api_key, version, request)
            try:
                call.send(None)
            except StopIteration:
                continue
            raise AssertionError(f"API {api_key} suspended")
        await broker.groups.stop()

    run(test())


def test_sessions_end_by_the_loops_timer() -> None:
    async def test() -> None:
        broker = await started(min_session_timeout_ms=10)
        joined = await broker.call("a", 11, 3, scenario.join("g", session_timeout_ms=20))
        member = joined.member_id
        await broker.call("a", 14, 5, scenario.sync("g", 1, member, {member: b"mine"}))
        while broker.groups.describe_group("g", 5).group_state != "Empty":  # noqa: ASYNC110 - bounded by `run`
            await asyncio.sleep(0.01)
        await broker.groups.stop()

    run(test())


def test_sessions_of_a_group_can_be_ended() -> None:
    async def test() -> None:
        broker = await started()
        members = {}
        for group in ("g", "beside"):
            joined = await broker.call("a", 11, 3, scenario.join(group))
            members[group] = joined.member_id
            await broker.call("a", 14, 5, scenario.sync(group, 1, joined.member_id, {joined.member_id: b"mine"}))
        assert broker.groups.expire_sessions("g") == 1
        assert broker.groups.heartbeat("g", 1, members["g"], None) is ErrorCode.UNKNOWN_MEMBER_ID
        assert broker.groups.heartbeat("beside", 1, members["beside"], None) is ErrorCode.NONE
        assert broker.groups.expire_sessions("g") == 0
        assert broker.groups.expire_sessions("no such group") == 0
        await broker.groups.stop()

    run(test())


def test_defect_in_one_group_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    expire = shard.on_timer

    def on_timer(state: ShardState, key: TimerKey, payload: Any) -> Outcome:
        if key[1] == "bad":
            raise ZeroDivisionError
        return expire(state, key, payload)

    async def test() -> None:
        broker = await started(min_session_timeout_ms=1, initial_rebalance_delay_ms=5)
        monkeypatch.setattr(shard, "on_timer", on_timer)
        parked = [
            asyncio.create_task(broker.call("a", 11, 9, scenario.join(group, group_instance_id="i")))
            for group in ("bad", "good")
        ]
        assert (await parked[1]).error_code == 0
        assert not parked[0].done()
        await broker.groups.stop()
        assert (await parked[0]).error_code == ErrorCode.NOT_COORDINATOR

    run(test())


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
    controller: Any = SimpleNamespace(perform=perform)
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


def test_settings_come_from_the_configuration_with_kafkas_defaults() -> None:
    assert GroupSettings.from_config(BrokerConfig.load(None)) == GroupSettings()
    changed = BrokerConfig.load(None, ["offsets.retention.minutes=3", "group.max.size=7"])
    settings = GroupSettings.from_config(changed)
    assert (settings.offsets_retention_ms, settings.max_size) == (180_000, 7)


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


def test_many_members_leave_in_one_request() -> None:
    async def test() -> None:
        broker = await started()
        joined = await broker.call("a", 11, 3, scenario.join("g"))
        await broker.call("a", 14, 5, scenario.sync("g", 1, joined.member_id, {joined.member_id: b"x"}))
        strangers = [(f"stranger {number}", None) for number in range(2_500)]
        answer = await broker.call("a", 13, 5, scenario.leave("g", *strangers, (joined.member_id, None)))
        assert [each.error_code for each in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2_500 + [0]
        assert broker.groups.describe_group("g", 5).group_state == "Empty"
        await broker.groups.stop()

    run(test())
