"""What a replica manager of a broker among others does: who is in sync, and who deletes what."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from replica_setup import NOBODY, NODE_ID, SOMEBODY_ELSE, TOPIC_ID, Setup, refused, setup

from pybroker.native.fetcher import FOLLOWER_CHECKPOINT
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.replication.fetcher_manager import NOTHING_FETCHED
from pybroker.replication.partition_roles import PartitionRoles
from pybroker.storage.files import offset_checkpoint
from pybroker.storage.logs.partition_log import PartitionLog
from tests.harness.waiting import until_async


def test_what_others_lack_is_not_committed(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            appending = asyncio.create_task(made.append())
            await made.elect(-2, isr=[NODE_ID])
            assert await appending == 0
            assert made.replicas.list_offset_now("t", 0, -1, 0).offset == 1
            await made.elect(-2, isr=[NODE_ID, SOMEBODY_ELSE])
            appending = asyncio.create_task(made.append())
            await until_async(lambda: made.replicas.log_end_offset("t", 0) == 2)
            await made.elect(NODE_ID)
            refused(lambda: made.replicas.list_offset_now("t", 0, -1, 0), ErrorCode.OFFSET_NOT_AVAILABLE)
            assert made.replicas.list_offset_now("t", 0, -2, 0).offset == 0
            assert (made.replicas.high_watermark("t", 0), made.replicas.log_end_offset("t", 0)) == (1, 2)
        with pytest.raises(KafkaError):
            await appending
        async with setup(tmp_path, is_alone=False) as again:
            await again.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            assert (again.replicas.high_watermark("t", 0), again.replicas.log_end_offset("t", 0)) == (1, 2)
            await again.elect(-2, isr=[NODE_ID])
            assert again.replicas.high_watermark("t", 0) == 2

    asyncio.run(run())


def test_appends_that_wait_for_others_fail_where_it_leads_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            appending = asyncio.create_task(made.append())
            await until_async(lambda: made.replicas.log_end_offset("t", 0) == 1)
            await made.replicas.resign("t", 0)
            with pytest.raises(KafkaError) as failure:
                await appending
            assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            refused(lambda: made.replicas.state("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await made.replicas.resign("t", 0)
            await made.replicas.resign("u", 0)
            await made.elect(NODE_ID)
            assert made.replicas.log_end_offset("t", 0) == 1, "led again, as the metadata says"

    asyncio.run(run())


def test_replicas_come_and_go(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create()
            assert await made.append() == 0
            both = [NODE_ID, SOMEBODY_ELSE]
            await made.elect(-2, replicas=both, adding_replicas=[SOMEBODY_ELSE])
            assert await made.append() == 1, "it is not in sync yet"
            await made.elect(SOMEBODY_ELSE, isr=both, adding_replicas=[])
            refused(lambda: made.replicas.state("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await made.elect(-2, replicas=[SOMEBODY_ELSE], isr=[SOMEBODY_ELSE])
            assert not (tmp_path / "t-0").exists()
            refused(lambda: made.replicas.state("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
            refused(lambda: made.replicas.state("t", 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    asyncio.run(run())


def test_records_are_deleted_when_all_who_are_alive_have_deleted_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            await made.elect(-2, isr=[NODE_ID])
            assert await made.append() == 0
            assert await made.replicas.delete_records("t", 0, -1, 0) == 1, "the other one is not alive"
            assert await made.append() == 1
            other = m.RegisterBrokerRecord(broker_id=SOMEBODY_ELSE, broker_epoch=1, fenced=False)
            await made.publish(other)
            with pytest.raises(KafkaError) as failure:
                await made.replicas.delete_records("t", 0, -1, 1)
            assert failure.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert made.replicas.log_start_offset("t", 0) == 2

    asyncio.run(run())


def test_statistics(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, is_alone=False) as made:
            await made.create(replicas=(NODE_ID, SOMEBODY_ELSE))
            await made.publish(
                m.ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="3")
            )
            assert made.replicas.statistics().under_min_isr_count == 0, "there are two replicas, so two are enough"
            await made.elect(-2, isr=[NODE_ID])
            found = made.replicas.statistics()
            assert found.under_min_isr_count == 1
            assert (found.following_count, found.max_lag, found.isr.expansion_count) == (0, 0, 0)
            assert found.fetchers == NOTHING_FETCHED
            await made.elect(SOMEBODY_ELSE)
            assert made.replicas.statistics().under_min_isr_count == 0, "that is its leader's to tell"

    asyncio.run(run())


def checkpointed(tmp_path: Path) -> list[int]:
    """What the checkpoints on the disk say of t-0."""
    names = (offset_checkpoint.RECOVERY_POINT, offset_checkpoint.HIGH_WATERMARK)
    return [offset_checkpoint.read(tmp_path / name).get(("t", 0), 0) for name in names]


async def settled(made: Setup, tmp_path: Path) -> PartitionLog:
    """Whose three records are synced, as the checkpoints say."""
    log = made.logs.logs["t", 0]
    await log.run(log.native.sync)
    await log.run(log.native.upkeep, 0, 0)
    await made.logs.write_checkpoints()
    assert min(checkpointed(tmp_path)) > 1
    return log


def test_a_log_that_was_cut_is_led_when_no_checkpoint_says_more(tmp_path: Path) -> None:
    """As a follower is that is elected at once: a recovery would trust what comes behind the cut."""

    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            for _ in range(3):
                await made.append()
            log = await settled(made, tmp_path)
            await made.elect(NOBODY)
            await log.run(log.native.truncate, 1)
            await made.elect(NODE_ID)
            assert checkpointed(tmp_path)[0] <= 1
            assert await made.append() == 1

    asyncio.run(run())


def test_a_topic_that_is_made_anew_is_led_when_no_checkpoint_speaks_of_the_old_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            for _ in range(3):
                await made.append()
            log = await settled(made, tmp_path)
            await made.publish(m.RemoveTopicRecord(topic_id=TOPIC_ID))
            await made.create()
            assert made.logs.logs["t", 0] is not log
            assert checkpointed(tmp_path) == [0, 0]

    asyncio.run(run())


def test_a_follower_that_was_cut_follows_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.create()
            followed: list[Any] = []

            async def follow_again(roles: PartitionRoles, replica: Any) -> None:
                followed.append(replica.log)

            monkeypatch.setattr(PartitionRoles, "follow_again", follow_again)
            log = made.logs.logs["t", 0]
            await made.replicas.on_follower(log.tag, FOLLOWER_CHECKPOINT, 5)
            assert followed == [log]

    asyncio.run(run())
