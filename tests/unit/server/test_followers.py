"""The leader of a replicated partition as its followers and clients see it over loopback: a follower here fetches as
Apache Kafka's does, with the message codec and no broker behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from daemon_client import TIMEOUT_S, Client, config_for, connected, running
from test_transactions import READ_COMMITTED, UNVERIFIED, end, produce, stable_end

from pybroker.native.partition import NativePartition
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode
from pybroker.server.daemon import Daemon
from tests.harness.waiting import until_async

FETCH_VERSION = 18
FOLLOWER = 2
LONG_MS = 60_000


class Follower:
    """Replica 2 of t-0: what it has got, batch by batch, and one connection to the leader."""

    def __init__(self, client: Client, topic_id: bytes) -> None:
        self._client = client
        self._topic_id = topic_id
        self.log = b""
        self.end = 0
        self.last_epoch = -1
        self.high_watermark = 0
        self.session_id = 0
        self.session_epoch = 0

    def _request(self, wait_ms: int, leader_epoch: int) -> m.FetchRequest:
        partition = m.FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=leader_epoch,
            fetch_offset=self.end,
            last_fetched_epoch=self.last_epoch,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        return m.FetchRequest(
            replica_state=m.FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=7),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=10 << 20,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[m.FetchRequest.FetchTopic(topic_id=self._topic_id, partitions=[partition])],
        )

    async def fetch(self, wait_ms: int = 0, *, leader_epoch: int = -1) -> ErrorCode:
        """Fetch once, and append what comes."""
        response = await self._client.call(self._request(wait_ms, leader_epoch), FETCH_VERSION)
        assert response.error_code == ErrorCode.NONE
        self.session_id = response.session_id
        self.session_epoch += 1
        for topic in response.responses:
            (row,) = topic.partitions
            if row.error_code:
                return ErrorCode(row.error_code)
            self._append(bytes(row.records or b""))
            self.high_watermark = row.high_watermark
        return ErrorCode.NONE

    def _append(self, records: bytes) -> None:
        for batch in record_batch.parse(records):
            assert batch.base_offset == self.end
            self.end = batch.last_offset + 1
            self.last_epoch = batch.partition_leader_epoch
        self.log += records


@asynccontextmanager
async def replicated(directory: Path, **overrides: str) -> AsyncIterator[tuple[Daemon, Client, Follower]]:
    """A broker that leads t-0 with replica 2 in sync, a client of it, and that replica."""
    async with (
        running(config_for(directory, **overrides)) as daemon,
        connected(daemon) as client,
        connected(daemon) as connection,
    ):
        topic = await client.make_topic("t")
        native = partition_of(daemon)
        lead(native, [1, FOLLOWER])
        yield daemon, client, Follower(connection, topic.topic_id)


def partition_of(daemon: Daemon) -> NativePartition:
    return daemon.logs.logs["t", 0].native


def lead(native: NativePartition, isr: list[int], partition_epoch: int = 1) -> None:
    native.lead_replicated(native.state.leader_epoch, partition_epoch, [1, FOLLOWER], isr)


async def stays_unanswered(waiting: asyncio.Task[Any]) -> None:
    """What is still unanswered after the loop has had all that is there for it."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()


def test_a_follower_gets_the_bytes_of_the_log_and_lets_acks_all_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path / "log") as (daemon, client, follower):
            for number in range(5):
                produced = asyncio.create_task(client.produce("t", b"value", str(number).encode()))
                await follower.fetch(LONG_MS)
                await stays_unanswered(produced)
                await follower.fetch()
                assert (await produced).base_offset == 2 * number
            assert follower.high_watermark == follower.end == 10
            assert follower.log == (tmp_path / "log" / "t-0" / "00000000000000000000.log").read_bytes()
            (state,) = partition_of(daemon).followers()
            assert (state.log_end_offset, state.caught_up_ms, state.broker_epoch) == (10, 0, 7)

    asyncio.run(run())


def test_a_follower_goes_on_in_its_session_and_hears_of_a_new_epoch(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (daemon, client, follower):
            native = partition_of(daemon)
            epoch = native.state.leader_epoch
            assert await follower.fetch(leader_epoch=epoch) is ErrorCode.NONE
            assert follower.session_id > 0
            lead(native, [1])
            assert (await client.produce("t", b"one")).error_code == ErrorCode.NONE
            await follower.fetch(leader_epoch=epoch)
            assert follower.end == 1
            native.lead_replicated(epoch + 1, 2, [1, FOLLOWER], [1, FOLLOWER])
            assert await follower.fetch(leader_epoch=epoch) is ErrorCode.FENCED_LEADER_EPOCH
            assert await follower.fetch(leader_epoch=epoch + 2) is ErrorCode.UNKNOWN_LEADER_EPOCH
            assert await follower.fetch(leader_epoch=epoch + 1) is ErrorCode.NONE
            native.resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert await follower.fetch(leader_epoch=epoch + 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            native.lead_replicated(epoch + 1, 2, [1, FOLLOWER], [1])

    asyncio.run(run())


def test_transactions_end_and_are_read_when_the_followers_have_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            replicated(tmp_path, **UNVERIFIED) as (daemon, client, follower),
            connected(daemon) as reader,
            connected(daemon) as coordinator,
        ):
            produced = asyncio.create_task(produce(client, 7, 0, 0, b"a1", b"a2"))
            await follower.fetch(LONG_MS)
            await follower.fetch()
            assert (await produced).error_code == ErrorCode.NONE
            assert await stable_end(reader) == (2, 0)
            aborted = asyncio.create_task(end(coordinator, 7, 0, commit=False))
            await follower.fetch(LONG_MS)
            await stays_unanswered(aborted)
            assert follower.end == 3
            assert await stable_end(reader) == (2, 0)  # the marker is here, and could be lost with this broker
            await follower.fetch()
            assert await aborted == ErrorCode.NONE
            assert await stable_end(reader) == (3, 3)
            row = await reader.fetch("t", 0, isolation_level=READ_COMMITTED)
            assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions] == [(7, 0)]
            lead(partition_of(daemon), [1])
            await ask_for_replicas(client, 2)
            async with asyncio.timeout(TIMEOUT_S):
                while await end(coordinator, 7, 0, commit=True) != ErrorCode.NOT_ENOUGH_REPLICAS:
                    pass  # until the data plane has been told
            assert (await client.produce("t", b"more")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    asyncio.run(run())


async def ask_for_replicas(client: Client, replicas: int) -> None:
    """Set min.insync.replicas of t."""
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(
        name="min.insync.replicas", config_operation=0, value=str(replicas)
    )
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name="t", configs=[config]
    )
    response = await client.call(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == ErrorCode.NONE


def test_a_stop_does_not_wait_for_a_follower_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.coordinator.group.coordinator._STOP_PATIENCE_S", 0.1)
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[row])
    commit = m.OffsetCommitRequest(group_id="g", topics=[topic])

    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.find_coordinator("g")
            async with asyncio.timeout(TIMEOUT_S):
                while (await client.call(commit, 9)).topics[0].partitions[0].error_code != ErrorCode.NONE:
                    pass  # until it is loaded
            native = daemon.logs.logs["__consumer_offsets", 0].native
            lead(native, [1, FOLLOWER])
            before = native.state.log_end_offset
            committing = asyncio.create_task(client.call(commit, 9))
            await until_async(lambda: native.state.log_end_offset > before)
            async with asyncio.timeout(TIMEOUT_S):
                await daemon.stop()
            assert (await committing).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR

    asyncio.run(run())


def test_versions_tell_of_fetch_18(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
            response = await client.call(request, 4)
            (fetch,) = (each for each in response.api_keys if each.api_key == m.FetchRequest.API_KEY)
            assert fetch.max_version == FETCH_VERSION

    asyncio.run(run())
