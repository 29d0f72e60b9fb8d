"""The asyncio driver: batching, loading, moving away, failures, time-outs, deletion, the metadata publisher."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import scenario
from broker_double import BrokerDouble, settle
from coordinator_setup import (
    IMAGE,
    commit_error,
    commit_held_back,
    run,
    started,
)
from memory_writer import MemoryWriter

from pybroker.config.broker import BrokerConfig
from pybroker.coordinator.group import shard
from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC, GroupSettings
from pybroker.coordinator.group.model.shard_state import ShardState
from pybroker.coordinator.outcome import Outcome
from pybroker.coordinator.timer import TimerKey
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode


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


def test_settings_come_from_the_configuration_with_kafkas_defaults() -> None:
    assert GroupSettings.from_config(BrokerConfig.load(None)) == GroupSettings()
    changed = BrokerConfig.load(None, ["offsets.retention.minutes=3", "group.max.size=7"])
    settings = GroupSettings.from_config(changed)
    assert (settings.offsets_retention_ms, settings.max_size) == (180_000, 7)


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
