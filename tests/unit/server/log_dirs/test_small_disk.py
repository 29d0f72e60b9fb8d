"""A full disk of a few MiB: what is refused, what goes on, and that writes resume by themselves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_client import Client, config_for, connected, running

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.replication import log_repair
from tests.harness.small_disk import mounted_disk

FULL = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small disk needs root, to mount")
    with mounted_disk(tmp_path / "small", "12m") as path:
        yield path


async def fill(client: Client) -> int:
    """Produce until the disk is full; how many records were taken."""
    for number in range(1000):
        answer = await client.produce("t", bytes(200_000), timestamp_ms=2**40)
        if answer.error_code != ErrorCode.NONE:
            assert answer.error_code == FULL
            return number
    raise AssertionError("the disk has no end")


async def until_taken(client: Client, topic: str) -> None:
    for _ in range(12_000):
        if (await client.produce(topic, bytes(200_000), timestamp_ms=2**40)).error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("no write is taken though there is room")


def test_deletions_make_room_on_a_full_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_repair, "REPAIR_INTERVAL_S", 0.02)
    config = config_for(
        small_disk / "data",
        log_segment_bytes="1048576",
        log_segment_delete_delay_ms="0",
        log_retention_ms="-1",
        log_initial_task_delay_ms="20",
        log_flush_offset_checkpoint_interval_ms="50",
    )

    async def run() -> None:
        async with running(config) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert await fill(client) > 10
            end = (await client.offset("t", -1)).offset
            # Reads go on, and so does what makes room.
            assert (await client.offset("t", 2**39)).offset == 0
            await client.make_topic("late")
            partition = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=end - 5)
            topics = [m.DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])]
            answer = await client.call(m.DeleteRecordsRequest(topics=topics, timeout_ms=60_000), 2)
            assert answer.topics[0].partitions[0].low_watermark == end - 5
            await until_taken(client, "t")
            await until_taken(client, "late")
            await fill(client)
        async with running(config) as daemon, connected(daemon) as client:
            await fill(client)
            deleted = [m.DeleteTopicsRequest.DeleteTopicState(name="t")]
            request = m.DeleteTopicsRequest(topics=deleted, timeout_ms=60_000)
            assert (await client.call(request, 6)).responses[0].error_code == ErrorCode.NONE
            await until_taken(client, "late")

    asyncio.run(run())


def test_a_log_moves_away_from_a_full_disk(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_repair, "REPAIR_INTERVAL_S", 0.02)
    roomy, full = tmp_path / "roomy", small_disk / "full"
    config = config_for(tmp_path, log_dirs=f"{roomy},{full}", log_segment_bytes="1048576", log_retention_ms="-1")

    async def run() -> None:
        async with running(config) as daemon, connected(daemon) as client, connected(daemon) as other:
            for name in ("t", "u"):
                await client.make_topic(name)
            if daemon.logs.logs["t", 0].directory.path != full:
                await move(client, "t", full)
            taken = await fill(client)
            loading = asyncio.create_task(keep_producing(other))
            await move(client, "t", roomy)
            await until_taken(client, "t")
            loading.cancel()
            assert (await client.offset("t", -1)).offset > taken
            assert daemon.logs.logs["t", 0].directory.path == roomy
        async with running(config) as daemon, connected(daemon) as client:
            assert (await client.offset("t", -1)).offset > taken
            assert (await client.offset("t", 2**39)).offset == 0

    async def keep_producing(client: Client) -> None:
        while True:
            await client.produce("t", bytes(200_000), timestamp_ms=2**40)

    async def move(client: Client, topic: str, log_dir: Path) -> None:
        topics = [m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[0])]
        dirs = [m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(log_dir), topics=topics)]
        answer = await client.call(m.AlterReplicaLogDirsRequest(dirs=dirs), 2)
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
        for _ in range(12_000):
            if (log_dir / f"{topic}-0").is_dir():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("the log does not move")

    asyncio.run(run())
