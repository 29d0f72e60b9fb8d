"""A log dir with less free than its reserve: producers are refused, and everything else goes on."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from daemon_client import Client, config_for, connected, running

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.daemon import Daemon
from pybroker.storage.dirs.directory_space import Measured
from pybroker.storage.logs import free_space

TOTAL_BYTES = 1000 << 20
PLENTY_BYTES = 500 << 20
FEW_BYTES = 5 << 20


class Disk:
    """What is free, as the broker finds it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_bytes = PLENTY_BYTES
        monkeypatch.setattr(free_space, "measure", lambda path: Measured(TOTAL_BYTES, self.free_bytes))

    async def becomes(self, daemon: Daemon, free_bytes: int, is_low: bool) -> None:
        self.free_bytes = free_bytes
        for _ in range(2000):
            if daemon.logs.directories[0].space.is_low is is_low:
                return
            await asyncio.sleep(0.005)
        raise AssertionError("nobody looks at the disk")


async def produce(client: Client, topic: str) -> int:
    return int((await client.produce(topic, b"value", timestamp_ms=2**40)).error_code)


async def commit(client: Client) -> None:
    """An offset of a group; in time for the group to be loaded."""
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[row])
    request = m.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    error = -1
    for _ in range(2000):
        answer: Any = await client.call(request, 9)
        error = answer.topics[0].partitions[0].error_code
        if error == 0:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"no offset can be committed: error {error}")


async def delete_records(client: Client, offset: int) -> int:
    partition = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [m.DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])]
    answer = await client.call(m.DeleteRecordsRequest(topics=topics, timeout_ms=60_000), 2)
    return int(answer.topics[0].partitions[0].low_watermark)


def test_only_producers_are_refused_below_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pybroker.storage.logs.free_space")
    disk = Disk(monkeypatch)
    refused = int(ErrorCode.KAFKA_STORAGE_ERROR)

    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert await produce(client, "t") == 0
            await client.find_coordinator("g")
            await commit(client)
            await disk.becomes(daemon, FEW_BYTES, True)
            answer = await client.produce("t", b"value", timestamp_ms=2**40)
            assert answer.error_code == refused
            assert answer.error_message == "the disk has less room left than pybroker.log.dir.reserve.bytes"
            # Offsets of groups and metadata are written, what is there is read, and what helps is done.
            await commit(client)
            assert (await client.fetch("t", 0)).records
            await client.make_topic("late")
            assert await produce(client, "late") == refused
            assert await delete_records(client, 1) == 1
            deleted = [m.DeleteTopicsRequest.DeleteTopicState(name="late")]
            request = m.DeleteTopicsRequest(topics=deleted, timeout_ms=60_000)
            assert (await client.call(request, 6)).responses[0].error_code == 0
            # It does not go to and fro.
            await disk.becomes(daemon, TOTAL_BYTES // 100 + 1, True)
            assert await produce(client, "t") == refused
            await disk.becomes(daemon, PLENTY_BYTES, False)
            assert await produce(client, "t") == 0
        disk.free_bytes = FEW_BYTES
        # From the first moment, too.
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            assert await produce(client, "t") == refused
            await commit(client)

    asyncio.run(run())
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "ERROR"]


def test_without_a_reserve_the_disk_is_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    disk.free_bytes = 0

    async def run() -> None:
        config = config_for(tmp_path, pybroker_log_dir_reserve_bytes="0")
        async with running(config) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert await produce(client, "t") == 0

    asyncio.run(run())
