"""Compaction in a running broker: what a real consumer reads, what a restart finds, the offsets topic included."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from daemon_client import Client, config_for, connected, running

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import Record
from pybroker.server.daemon import Daemon
from pybroker.storage.files import offset_checkpoint

SETTINGS = {"log_cleaner_backoff_ms": "20", "log_cleaner_min_cleanable_ratio": "0"}
COMPACT = {"cleanup.policy": "compact", "internal.segment.bytes": "2000", "file.delete.delay.ms": "10"}
TOPIC = 2
BROKER = 4
EARLIEST = -2


async def create(client: Client, name: str, configs: dict[str, str]) -> None:
    configs_of = m.CreateTopicsRequest.CreatableTopicConfig
    topic = m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[configs_of(name=key, value=value) for key, value in configs.items()],
    )
    response = await client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert response.topics[0].error_code == 0


async def alter(client: Client, name: str, configs: dict[str, str], resource_type: int = TOPIC) -> None:
    config_of = m.IncrementalAlterConfigsRequest.AlterableConfig
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[config_of(name=key, config_operation=0, value=value) for key, value in configs.items()],
    )
    response = await client.call(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0


async def produce(client: Client, topic: str, *pairs: tuple[bytes, bytes | None]) -> int:
    """One batch; its base offset."""
    records = [Record(key, value) for key, value in pairs]
    batch = record_batch.build(0, -1, records, timestamp_ms=time.time_ns() // 1_000_000)
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    response = await client.call(m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 9)
    row = response.responses[0].partition_responses[0]
    assert row.error_code == 0, row.error_message
    offset: int = row.base_offset
    return offset


async def read(client: Client, topic: str) -> list[Record]:
    """All records of partition 0, by Fetch."""
    records: list[Record] = []
    offset = (await client.offset(topic, EARLIEST)).offset
    end_offset = offset + 1
    while offset < end_offset:
        row = await client.fetch(topic, offset)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return await read(client, topic)  # retention has moved the start meanwhile
        assert row.error_code == 0
        end_offset = row.high_watermark
        batches = list(record_batch.parse(row.records or b""))
        if not batches:
            break
        for batch in batches:
            records += [record for record in batch.records if record.offset >= offset]
        offset = batches[-1].last_offset + 1
    return records


def consume(port: int, topic: str, end_offset: int) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of partition 0 as a real consumer gets them."""
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(settings)
    found: list[tuple[int, bytes, bytes | None]] = []
    deadline = time.monotonic() + 60
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                found.append((message.offset(), message.key(), message.value()))
            elif message.offset() >= end_offset:
                return found
    finally:
        consumer.close()
    raise AssertionError(f"no end of the partition within 60 s, only {len(found)} records")


def size_of(path: Path) -> int:
    """0 for a file that has gone meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def until(what: str, condition: Any) -> None:
    for _ in range(3000):
        if await condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within 60 s: {what}")


def test_only_the_last_value_of_each_key_stays(tmp_path: Path) -> None:
    latest: dict[bytes, tuple[int, bytes | None]] = {}

    async def write(client: Client, count: int, value: bytes) -> int:
        offset = -1
        for number in range(count):
            key = b"key-%d" % (number % 7)
            offset = await produce(client, "t", (key, value))
            latest[key] = (offset, value)
        return offset + 1

    async def run() -> None:
        config = config_for(tmp_path, **SETTINGS)
        async with running(config) as daemon, connected(daemon) as client:
            await create(client, "t", COMPACT | {"delete.retention.ms": "1"})
            await write(client, 100, b"v" * 200)
            gone = await produce(client, "t", (b"key-0", None))
            end_offset = await write(client, 20, b"w" * 200)
            # The tombstone is before the last of key-0, so that it goes as an old record; this one goes by its age.
            last_tombstone = await produce(client, "t", (b"key-3", None))
            del latest[b"key-3"]
            end_offset = await write(client, 3, b"x" * 200)

            async def is_compacted() -> bool:
                # What is below the active segment has one record of each key once the cleaner is done with it.
                records = [each for each in await read(client, "t") if each.offset < last_tombstone - 10]
                keys = [each.key for each in records]
                return len(keys) == len(set(keys)) and gone not in {each.offset for each in records}

            await until("one record per key", is_compacted)

            async def is_tombstone_gone() -> bool:
                # The active segment is never cleaned, and a horizon counts from the pass that set it.
                await produce(client, "t", (b"filler", b"f" * 300))
                return all(each.offset != last_tombstone for each in await read(client, "t"))

            await until("the tombstone goes", is_tombstone_gone)
            records = await read(client, "t")
            for key, (offset, value) in latest.items():
                assert [(each.offset, each.value) for each in records if each.key == key] == [(offset, value)]
            end_offset = await produce(client, "t", (b"end", b"")) + 1
            checkpoint = tmp_path / offset_checkpoint.CLEANER_OFFSET
            clean_offset = offset_checkpoint.read(checkpoint)["t", 0]
            assert 100 < clean_offset < end_offset
        async with running(config) as daemon, connected(daemon) as client:
            port = daemon.listeners[0].port
            consumed = await asyncio.to_thread(consume, port, "t", end_offset)
            read_back = [(each.offset, each.key, each.value) for each in await read(client, "t")]
            assert consumed == read_back
            assert consumed[-1][:2] == (end_offset - 1, b"end")
            for key, (offset, value) in latest.items():
                assert [(each[0], each[2]) for each in consumed if each[1] == key] == [(offset, value)]

    asyncio.run(run())


def test_settings_change_while_the_broker_runs(tmp_path: Path) -> None:
    async def run() -> None:
        config = config_for(tmp_path, log_cleaner_backoff_ms="600000", log_cleaner_min_cleanable_ratio="0.99")
        async with running(config) as daemon, connected(daemon) as client:
            await create(client, "t", COMPACT | {"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "600000"})
            for _ in range(40):
                await produce(client, "t", (b"k", b"v" * 200))
            await alter(client, "", {"log.cleaner.backoff.ms": "10", "log.cleaner.min.cleanable.ratio": "0.1"}, BROKER)
            await asyncio.sleep(0.3)
            assert len(await read(client, "t")) == 40, "too young"
            await alter(client, "t", {"min.compaction.lag.ms": "0"})

            async def is_compacted() -> bool:
                return len(await read(client, "t")) < 15

            await until("compaction", is_compacted)
            await alter(client, "t", {"cleanup.policy": "delete", "retention.ms": "1"})
            assert len(await read(client, "t")) > 0
            await alter(client, "t", {"cleanup.policy": "compact,delete"})

            async def is_deleted() -> bool:
                return not await read(client, "t")

            await until("retention by the cleaner", is_deleted)

    asyncio.run(run())


def test_committed_offsets_are_compacted(tmp_path: Path) -> None:
    async def commit(client: Client, group: str, offset: int) -> None:
        partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="x" * 100
        )
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = m.OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, member_id="", retention_time_ms=-1, topics=[topic]
        )

        async def is_done() -> bool:
            response = await client.call(request, 8)
            return bool(response.topics[0].partitions[0].error_code == 0)

        await until("the commit", is_done)

    async def committed(client: Client, group: str) -> int:
        wanted = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group, topics=[m.OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
        offset = -1

        async def is_loaded() -> bool:
            nonlocal offset
            (row,) = (await client.call(m.OffsetFetchRequest(groups=[wanted]), 9)).groups
            if row.error_code == 0:
                offset = row.topics[0].partitions[0].committed_offset
            return bool(row.error_code == 0)

        await until("the group", is_loaded)
        return offset

    async def run() -> None:
        config = config_for(tmp_path, **SETTINGS)
        path = tmp_path / "__consumer_offsets-0"
        async with running(config) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.find_coordinator("g")
            await alter(client, "__consumer_offsets", {"internal.segment.bytes": "2000", "file.delete.delay.ms": "10"})
            await commit(client, "early", 3)
            for offset in range(100):
                await commit(client, "g", offset)

            async def is_small() -> bool:
                return sum(map(size_of, path.glob("*.log"))) < 6000

            await until("a small log", is_small)
        async with running(config) as daemon, connected(daemon) as client:
            assert await committed(client, "g") == 99
            assert await committed(client, "early") == 3

    asyncio.run(run())


def test_the_rate_counts_at_once_and_a_stop_does_not_wait(tmp_path: Path) -> None:
    rate = "log.cleaner.io.max.bytes.per.second"

    async def is_running(daemon: Daemon) -> bool:
        return bool(daemon.cleaner.statistics().running)

    async def run() -> None:
        # At this rate a pass would take longer than anybody waits here.
        config = config_for(tmp_path, **SETTINGS, **{rate: "1"})
        async with running(config) as daemon, connected(daemon) as client:
            await create(client, "t", COMPACT)
            for number in range(40):
                await produce(client, "t", (b"k%d" % (number % 3), b"v" * 200))
            await until("a pass", lambda: is_running(daemon))
            await alter(client, "", {rate: "1e9"}, BROKER)

            async def is_compacted() -> bool:
                return len(await read(client, "t")) < 20

            await until("compaction", is_compacted)
            await alter(client, "", {rate: "1"}, BROKER)
            for number in range(40):
                await produce(client, "t", (b"k%d" % (number % 3), b"w" * 200))
            await until("a pass", lambda: is_running(daemon))
            async with asyncio.timeout(60):
                await daemon.stop()
        async with running(config) as daemon, connected(daemon) as client:
            latest = {each.key: each.value for each in await read(client, "t")}
            assert latest == {b"k%d" % number: b"w" * 200 for number in range(3)}

    asyncio.run(run())
