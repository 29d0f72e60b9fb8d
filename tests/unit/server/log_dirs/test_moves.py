"""Logs that move between log dirs while they are served, and starts that find a move half made."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from daemon_client import Client, config_for, connected, running

from pybroker.config.broker import BrokerConfig
from pybroker.native.errors import NativeError
from pybroker.native.partition import NativePartition
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import Record
from pybroker.server.daemon import Daemon
from pybroker.storage.files import offset_checkpoint
from pybroker.storage.logs import log_mover
from pybroker.storage.logs.partition_log import PartitionLog
from tests.harness.waiting import until, until_async

OK = ErrorCode.NONE
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def config(tmp_path: Path, **overrides: str) -> BrokerConfig:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    return config_for(tmp_path, log_dirs=dirs, log_segment_bytes="1048576", **overrides)


async def alter(client: Client, log_dir: Path, topic: str = "t", index: int = 0) -> ErrorCode:
    topics = [m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[index])]
    dirs = [m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(log_dir), topics=topics)]
    answer = await client.call(m.AlterReplicaLogDirsRequest(dirs=dirs), 2)
    return ErrorCode(answer.results[0].partitions[0].error_code)


async def described(client: Client) -> dict[str, Any]:
    """The row of partition t-0 by the name of the log dir; a future one has a `+` before it."""
    answer = await client.call(m.DescribeLogDirsRequest(topics=None), 4)
    return {
        "+" * row.is_future_key + Path(each.log_dir).name: row
        for each in answer.results
        for topic in each.topics
        for row in topic.partitions
        if topic.name == "t"
    }


async def throttle(client: Client, rate: int) -> None:
    setting = m.IncrementalAlterConfigsRequest.AlterableConfig(name=RATE, config_operation=0, value=str(rate))
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name="1", configs=[setting]
    )
    answer = await client.call(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == OK, answer.responses[0].error_message


async def read_all(client: Client, end: int) -> list[bytes]:
    """The values of t-0 up to `end`."""
    values: list[bytes] = []
    while len(values) < end:
        row = await client.fetch("t", len(values))
        assert row.error_code == OK
        for batch in record_batch.parse(row.records):
            assert batch.base_offset == len(values)
            values += [record.value for record in batch.records]
    return values


def place(daemon: Daemon) -> str:
    return daemon.logs.logs["t", 0].directory.path.name


@asynccontextmanager
async def filled(tmp_path: Path, count: int, **overrides: str) -> AsyncIterator[tuple[Daemon, Client]]:
    """A broker whose topic `t` has `count` records of 80 kB in log dir `a`."""
    async with running(config(tmp_path, **overrides)) as daemon, connected(daemon) as client:
        await client.make_topic("t")
        if place(daemon) != "a":
            assert await alter(client, tmp_path / "a") == OK
            await until_async(lambda: place(daemon) == "a")
        for number in range(count):
            assert (await client.produce("t", value(number))).error_code == OK
        yield daemon, client


def value(number: int) -> bytes:
    return f"{number:8d}".encode() * 10_000


def test_a_log_moves_while_records_come(tmp_path: Path) -> None:
    async def run() -> None:
        produced = 40
        # Acks have to be durable: those that wait for a sync are not to be forgotten in a move.
        async with filled(tmp_path, produced, pybroker_durability="acks") as (daemon, client):
            async with connected(daemon) as mover:
                for target in ("b", "a"):
                    # So slow that it is looked at on its way, and then so fast that it catches up with the records.
                    await throttle(mover, 100_000)
                    assert await alter(mover, tmp_path / target) == OK
                    source = place(daemon)
                    assert source != target
                    seen: list[Any] = []
                    while place(daemon) != target:
                        if sum("+" + target in each for each in seen) == 10:
                            await throttle(mover, 10**9)
                        answer = await client.produce("t", value(produced))
                        assert (answer.error_code, answer.base_offset) == (OK, produced), "nobody notices"
                        produced += 1
                        seen.append(await described(mover))
                        await asyncio.sleep(0.02)
                    futures = [each["+" + target] for each in seen if "+" + target in each]
                    sizes = [each.partition_size for each in futures]
                    assert sizes == sorted(sizes) and sizes[-1] > 0
                    assert futures[0].offset_lag > 0
                    await until_async(lambda: not daemon.services.mover.futures())
                    assert set(await described(mover)) == {target}
                    deleted = [path.name for path in (tmp_path / source).iterdir() if path.name.startswith("t-0")]
                    assert deleted and all(name.endswith("-delete") for name in deleted)
                    assert (await client.produce("t", value(produced))).error_code == OK
                    produced += 1
            assert await read_all(client, produced) == [value(number) for number in range(produced)]
            image = daemon.services.metadata.image
            partition = image.topics.by_name["t"].partitions[0]
            assert partition.directory(1) == daemon.logs.logs["t", 0].directory.directory_id
            points = offset_checkpoint.read(tmp_path / "a" / offset_checkpoint.HIGH_WATERMARK)
            assert ("t", 0) in points
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert place(daemon) == "a"
            assert await read_all(client, produced) == [value(number) for number in range(produced)]

    asyncio.run(run())


def test_a_move_ends_when_it_is_not_wanted(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path, 20) as (daemon, client):
            await throttle(client, 100_000)
            assert await alter(client, tmp_path / "b") == OK
            await until_async(lambda: bool(daemon.services.mover.futures()))
            assert await alter(client, tmp_path / "b") == OK
            assert await alter(client, tmp_path / "a") == OK
            await until_async(lambda: not daemon.services.mover._tasks)
            assert set(await described(client)) == {"a"}
            assert not list((tmp_path / "b").glob("t-0*"))
            assert (await client.produce("t", value(20))).error_code == OK
            assert await read_all(client, 21) == [value(number) for number in range(21)]
            # A deleted topic takes its move along.
            assert await alter(client, tmp_path / "b") == OK
            await until_async(lambda: bool(daemon.services.mover.futures()))
            deleted = [m.DeleteTopicsRequest.DeleteTopicState(name="t")]
            request = m.DeleteTopicsRequest(topics=deleted, timeout_ms=60_000)
            assert (await client.call(request, 6)).responses[0].error_code == OK
            await until_async(lambda: not daemon.services.mover._tasks)
            assert not list((tmp_path / "b").glob("t-0*"))

    asyncio.run(run())


def test_moves_that_wait_for_others_hold_nobody_up(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path, 20, num_replica_alter_log_dirs_threads="1") as (daemon, client):
            mover = daemon.services.mover
            await throttle(client, 50_000)
            assert await alter(client, tmp_path / "b") == OK
            for _ in range(2):
                await client.make_topic("u")
                target = {"a": "b", "b": "a"}[daemon.logs.logs["u", 0].directory.path.name]
                # It is told at once that the move has begun, though there is no thread for it.
                assert await alter(client, tmp_path / target, "u") == OK
                assert {each.key for each in mover.futures()} == {("t", 0), ("u", 0)}
                first = list((tmp_path / target).glob("u-0.*-future"))
                assert len(first) == 1, "of a deleted topic nothing is left"
                deleted = [m.DeleteTopicsRequest.DeleteTopicState(name="u")]
                request = m.DeleteTopicsRequest(topics=deleted, timeout_ms=60_000)
                assert (await client.call(request, 6)).responses[0].error_code == OK
            await client.make_topic("u")
            target = {"a": "b", "b": "a"}[daemon.logs.logs["u", 0].directory.path.name]
            assert await alter(client, tmp_path / target, "u") == OK
            assert place(daemon) == "a", "the first one is still on its way"
            await throttle(client, 10**9)
            await until_async(lambda: not mover._tasks)
            assert place(daemon) == "b" and daemon.logs.logs["u", 0].directory.path.name == target

    asyncio.run(run())


def test_no_move_begins_behind_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path, 1) as (daemon, client):
            await daemon.services.mover.stop()
            assert await alter(client, tmp_path / "b") == ErrorCode.REPLICA_NOT_AVAILABLE
            assert not daemon.services.mover._tasks and not list((tmp_path / "b").glob("t-0*"))

    asyncio.run(run())


@pytest.mark.parametrize("held", [False, True], ids=["while it is copied", "just before it is held"])
def test_a_log_that_is_cut_on_its_way_arrives_as_it_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    def cut(log: PartitionLog) -> None:
        """As a follower whose leader has changed: at the same places comes something else."""
        native = log.native
        state = native.state
        native.resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        native.truncate(3)
        native.lead(state.leader_epoch)
        for number in range(3, 12):
            native.append(record_batch.build(0, 0, [Record(None, value(100 + number))], timestamp_ms=1), 1)
        until(lambda: native.state.high_watermark == 12)

    async def run() -> None:
        async with filled(tmp_path, 30) as (daemon, client):
            log = daemon.logs.logs["t", 0]
            switch = log_mover._hold_and_switch
            passes: list[int] = []

            def cut_before(move: log_mover.Move, original: Path) -> int:
                passes.append(move.copy.copied_bytes if move.copy else 0)
                if len(passes) == 1 and held:
                    cut(move.log)
                return switch(move, original)

            monkeypatch.setattr(log_mover, "_hold_and_switch", cut_before)
            await throttle(client, 10**9 if held else 100_000)
            assert await alter(client, tmp_path / "b") == OK
            if not held:
                await until_async(lambda: any(each.size_bytes > 0 for each in daemon.services.mover.futures()))
                await asyncio.get_running_loop().run_in_executor(None, cut, log)
                await throttle(client, 10**9)
            await until_async(lambda: not daemon.services.mover._tasks)
            assert place(daemon) == "b" and len(passes) == 1 + held
            expected = [value(number if number < 3 else 100 + number) for number in range(12)]
            assert await read_all(client, 12) == expected
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert place(daemon) == "b"
            assert await read_all(client, 12) == expected

    asyncio.run(run())


def test_what_damage_left_moves_along(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path, 3) as (daemon, client):
            kept = "00000000000000000000.log.damaged-80070"
            data = bytes(range(256)) * 10_000
            (tmp_path / "a" / "t-0" / kept).write_bytes(data)
            assert await alter(client, tmp_path / "b") == OK
            await until_async(lambda: not daemon.services.mover._tasks)
            assert place(daemon) == "b"
            assert (tmp_path / "b" / "t-0" / kept).read_bytes() == data

    asyncio.run(run())


def test_what_cannot_be_moved_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path, 1) as (daemon, client):
            assert await alter(client, tmp_path / "c") == ErrorCode.LOG_DIR_NOT_FOUND
            assert await alter(client, tmp_path / "b", "absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await alter(client, tmp_path / "b", "t", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            long = "x" * 240
            await client.make_topic(long)
            target = {"a": "b", "b": "a"}[daemon.logs.logs[long, 0].directory.path.name]
            assert await alter(client, tmp_path / target, long) == ErrorCode.INVALID_TOPIC_EXCEPTION
            daemon.logs.failures.fail(daemon.logs.directories[1], "of a test")
            assert await alter(client, tmp_path / "b") == ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(run())


def test_a_move_that_a_stop_interrupted_begins_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path, 20) as (daemon, client):
            await throttle(client, 100_000)
            assert await alter(client, tmp_path / "b") == OK
            await until_async(lambda: bool(daemon.services.mover.futures()))
        assert [path.name.rpartition("-")[2] for path in (tmp_path / "b").glob("t-0*")] == ["future"]
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            await throttle(client, 10**9)
            await until_async(lambda: place(daemon) == "b")
            assert await read_all(client, 20) == [value(number) for number in range(20)]

    asyncio.run(run())


def test_a_start_finishes_a_move_that_was_made(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path, 3):
            pass
        shutil.copytree(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0.0123-future")
        (tmp_path / "a" / "t-0").rename(tmp_path / "a" / "t-0.0123-delete")
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert place(daemon) == "b"
            assert await read_all(client, 3) == [value(number) for number in range(3)]
            partition = daemon.services.metadata.image.topics.by_name["t"].partitions[0]
            assert partition.directory(1) == daemon.logs.logs["t", 0].directory.directory_id

    asyncio.run(run())


def test_a_failed_switch_leaves_the_log_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with filled(tmp_path, 3) as (daemon, client):

            def fail(source: Path, target: Path) -> None:
                raise PermissionError(13, "of a test", str(source))

            monkeypatch.setattr(log_mover.os, "rename", fail)
            native = daemon.logs.logs["t", 0].native
            durable_offset = native.state.durable_offset
            assert durable_offset < 3
            assert await alter(client, tmp_path / "b") == OK
            await until_async(lambda: not daemon.services.mover._tasks)
            monkeypatch.undo()
            assert place(daemon) == "a" and not list((tmp_path / "b").glob("t-0*"))
            assert native.state.durable_offset == durable_offset, "only the copy was synced"
            assert (await client.produce("t", value(3))).error_code == OK
            assert await read_all(client, 4) == [value(number) for number in range(4)]
        assert "t-0 could not be moved" in caplog.text and "of a test" in caplog.text
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert await read_all(client, 4) == [value(number) for number in range(4)]

    asyncio.run(run())


def test_a_log_goes_back_to_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        segment = tmp_path / "a" / "t-0" / "00000000000000000000.log"
        out_of_reach = segment.with_suffix(".out-of-reach")
        async with filled(tmp_path, 3) as (daemon, client):
            rename = os.rename

            def fail(source: Path, target: Path) -> None:
                # What is open on the failing disk can be used for a while, but nothing can be opened.
                rename(segment, out_of_reach)
                raise OSError(errno.EIO, "of a test", str(source))

            monkeypatch.setattr(log_mover.os, "rename", fail)
            assert await alter(client, tmp_path / "b") == OK
            await until_async(lambda: not daemon.services.mover._tasks)
            monkeypatch.undo()
            assert not list((tmp_path / "b").glob("t-0*")), "the log is not in there"
            assert daemon.logs.directories[0].failure is not None
            row = await client.produce("t", value(3))
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR, "nothing is acknowledged that nobody will find"
        out_of_reach.rename(segment)
        async with running(config(tmp_path)) as daemon, connected(daemon) as client:
            assert place(daemon) == "a"
            assert await read_all(client, 3) == [value(number) for number in range(3)]

    asyncio.run(run())


def test_replicas_stay_on_their_brokers(tmp_path: Path) -> None:
    async def run() -> None:
        async with filled(tmp_path, 0) as (_, client):
            request = m.AlterPartitionReassignmentsRequest
            cases = [(0, [1]), (0, None), (0, []), (0, [1, 1]), (0, [2]), (5, [1])]
            rows = [request.ReassignablePartition(partition_index=index, replicas=each) for index, each in cases]
            topics = [request.ReassignableTopic(name="t", partitions=rows)]
            answer = await client.call(request(topics=topics), 0)
            assert [row.error_code for row in answer.responses[0].partitions] == [
                OK,
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                *[ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 3,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            listed = await client.call(m.ListPartitionReassignmentsRequest(topics=None), 0)
            assert (listed.error_code, listed.topics) == (OK, [])

    asyncio.run(run())


def test_a_disk_that_fails_while_a_log_leaves_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that failed is told once: nobody else hears of it."""

    def fail(native: NativePartition) -> None:
        raise NativeError(-errno.EIO, f"cannot write an index in {native}")

    async def run() -> None:
        async with filled(tmp_path, 1) as (daemon, client):
            assert await alter(client, tmp_path / "b") == OK
            await until_async(lambda: place(daemon) == "b" and not daemon.services.mover._tasks)
            monkeypatch.setattr(NativePartition, "hold", fail)
            assert await alter(client, tmp_path / "a") == OK
            await until_async(lambda: not daemon.services.mover._tasks)
            assert list(daemon.logs.failures.offline) == [tmp_path / "b"]

    asyncio.run(run())
