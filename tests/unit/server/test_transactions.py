"""The log side of transactions, spoken to over loopback: markers, last stable offset, aborted transactions, who is
fenced, and what a real consumer reads."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import daemon_client
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from daemon_client import Client, config_for, connected, running

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.coordinator_records import encode_key, encode_value
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import Record

UNVERIFIED = {"transaction_partition_verification_enable": "false"}
READ_COMMITTED = 1
LATEST = -1


async def produce(client: Client, producer_id: int, epoch: int, sequence: int, *values: bytes) -> Any:
    """Append one transactional batch to t-0; the partition's row."""
    records = [Record(b"k", value) for value in values]
    return await produce_records(client, "t", records, producer_id, epoch, sequence)


async def produce_records(
    client: Client,
    topic: str,
    records: list[Record],
    producer_id: int,
    epoch: int,
    sequence: int,
    transactional_id: str | None = "tx",
) -> Any:
    """Append one transactional batch to partition 0 of a topic; the partition's row."""
    batch = record_batch.build(
        0,
        -1,
        records,
        timestamp_ms=time.time_ns() // 1_000_000,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    request = m.ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=60_000, topic_data=[data])
    return (await client.call(request, 9)).responses[0].partition_responses[0]


async def end(
    client: Client,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    version: int = 0,
    topic: str = "t",
    partition: int = 0,
) -> int:
    """Write a marker to one partition; the error code."""
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
        topics=[m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
    )
    response = await client.call(m.WriteTxnMarkersRequest(markers=[marker]), 2 if version else 1)
    (row,) = response.markers
    assert row.producer_id == producer_id
    code: int = row.topics[0].partitions[0].error_code
    return code


async def stable_end(client: Client) -> tuple[int, int]:
    """(latest offset of t-0 for read_uncommitted, for read_committed)."""
    wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST, current_leader_epoch=-1)
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])]
    found = []
    for isolation_level in (0, READ_COMMITTED):
        request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
        found.append((await client.call(request, 7)).topics[0].partitions[0].offset)
    return found[0], found[1]


async def open_transactions(client: Client) -> dict[int, tuple[int, int, int]]:
    """Producer id: (epoch, coordinator epoch, start of its transaction) as DescribeProducers tells it."""
    topic = m.DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    response = await client.call(m.DescribeProducersRequest(topics=[topic]), 0)
    return {
        each.producer_id: (each.producer_epoch, each.coordinator_epoch, each.current_txn_start_offset)
        for each in response.topics[0].partitions[0].active_producers
    }


def consume(port: int, isolation: str, end_offset: int) -> list[bytes]:
    """The values of t-0 that a real consumer gets, up to the end of the partition."""
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "group.id": "unused",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(settings)
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    try:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value())
            elif message.offset() >= end_offset:
                return values
    finally:
        consumer.close()
    raise AssertionError(f"no end of the partition within 60 s, only {values}")


def test_committed_aborted_and_open_transactions(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path, **UNVERIFIED)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert (await produce(client, 7, 0, 0, b"a1", b"a2")).base_offset == 0
            assert (await produce(client, 8, 3, 0, b"b1")).base_offset == 2
            assert await stable_end(client) == (3, 0)
            assert await open_transactions(client) == {7: (0, -1, 0), 8: (3, -1, 2)}
            assert await end(client, 7, 0, commit=False, coordinator_epoch=5) == 0
            assert await stable_end(client) == (4, 2), "the other transaction is open"
            assert await open_transactions(client) == {7: (0, 5, -1), 8: (3, -1, 2)}
            assert await end(client, 8, 3, commit=True) == 0
            assert (await produce(client, 7, 0, 2, b"a3")).base_offset == 5
            assert await stable_end(client) == (6, 5)
            row = await client.fetch("t", 0, isolation_level=READ_COMMITTED)
            assert (row.high_watermark, row.last_stable_offset) == (6, 5)
            assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions] == [(7, 0)]
            batches = list(record_batch.parse(row.records))
            assert [each.base_offset for each in batches] == [0, 2, 3, 4], "and nothing of the open transaction"
            assert [(each.is_control, each.producer_id) for each in batches[2:]] == [(True, 7), (True, 8)]
            everything = await client.fetch("t", 0, isolation_level=0)
            assert everything.aborted_transactions is None
            assert len(list(record_batch.parse(everything.records))) == 5
            port = daemon.listeners[0].port
            assert await asyncio.to_thread(consume, port, "read_committed", 5) == [b"b1"]
            assert await asyncio.to_thread(consume, port, "read_uncommitted", 6) == [b"a1", b"a2", b"b1", b"a3"]
        # All of it is in Kafka's own files, and is read back from them.
        async with running(config_for(tmp_path, **UNVERIFIED)) as daemon, connected(daemon) as client:
            assert await stable_end(client) == (6, 5)
            row = await client.fetch("t", 0, isolation_level=READ_COMMITTED)
            assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions] == [(7, 0)]
            assert await open_transactions(client) == {7: (0, 5, 5), 8: (3, 0, -1)}
            assert await end(client, 7, 0, commit=True, coordinator_epoch=5) == 0
            assert await asyncio.to_thread(consume, daemon.listeners[0].port, "read_committed", 7) == [b"b1", b"a3"]

    asyncio.run(run())


def test_who_may_end_a_transaction(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path, **UNVERIFIED)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await produce(client, 7, 4, 0, b"x")
            assert await end(client, 7, 3, commit=True) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await end(client, 7, 4, commit=True, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await end(client, 7, 5, commit=True, version=2, coordinator_epoch=9) == 0
            assert await end(client, 7, 5, commit=True, version=2, coordinator_epoch=9) == 0, "it may come again"
            assert await end(client, 7, 5, commit=True, coordinator_epoch=8) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
            row = await produce(client, 7, 4, 1, b"y")
            assert (row.error_code, row.base_offset, row.log_start_offset) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1, 0)
            row = await produce_records(client, "t", [Record(b"k", b"z")], 7, 5, 0, transactional_id=None)
            assert row.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert await end(client, 7, 5, commit=True, topic="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await end(client, 7, 5, commit=True, partition=3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await end(client, -1, 0, commit=True) == ErrorCode.INVALID_REQUEST

    asyncio.run(run())


def test_without_a_coordinator_nobody_vouches_for_a_transaction(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            row = await produce(client, 7, 0, 0, b"x")
            assert row.error_code == ErrorCode.INVALID_TXN_STATE
            assert await stable_end(client) == (0, 0)
            resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=4,
                resource_name="",
                configs=[
                    m.IncrementalAlterConfigsRequest.AlterableConfig(
                        name="transaction.partition.verification.enable", config_operation=0, value="false"
                    )
                ],
            )
            request = m.IncrementalAlterConfigsRequest(resources=[resource])
            assert (await client.call(request, 1)).responses[0].error_code == 0
            assert (await produce(client, 7, 0, 0, b"x")).error_code == 0

    asyncio.run(run())


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_decides_on_committed_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: bool) -> None:
    """Offsets that a transaction committed; only Kafka's own tools may write to that topic."""

    async def committed(client: Client) -> int:
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="g",
            topics=[m.OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
        )
        for _ in range(3000):
            response = await client.call(m.OffsetFetchRequest(groups=[group]), 9)
            if response.groups[0].error_code == 0:
                offset: int = response.groups[0].topics[0].partitions[0].committed_offset
                return offset
            await asyncio.sleep(0.02)
        raise AssertionError("the group's partition was not loaded")

    async def run() -> None:
        config = config_for(tmp_path, **UNVERIFIED)
        async with running(config) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.find_coordinator("g")
            assert await committed(client) == -1
            key = encode_key(m.OffsetCommitKey(group="g", topic="t", partition=0))
            value = encode_value(m.OffsetCommitValue(offset=42, metadata="", commit_timestamp=2**50), 3)
            monkeypatch.setattr(daemon_client, "CLIENT_ID", "__admin_client")
            row = await produce_records(client, "__consumer_offsets", [Record(key, value)], 9, 0, 0)
            assert row.error_code == 0
        async with running(config) as daemon, connected(daemon) as client:
            assert await committed(client) == -1, "the transaction is open"
            assert await end(client, 9, 0, commit=commit, topic="__consumer_offsets") == 0
            expected_offset = 42 if commit else -1
            assert await committed(client) == expected_offset
            gone = await end(client, 9, 0, commit=commit, topic="__consumer_offsets", partition=7)
            assert gone == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with running(config) as daemon, connected(daemon) as client:
            assert await committed(client) == expected_offset

    asyncio.run(run())
