"""Starts after something went wrong with files, and the stops before them."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from daemon_client import Client, config_for, connected, running
from test_moves import alter, config, filled, read_all, value

from pybroker.native.rings import ring_stats
from pybroker.profiles import load_profile
from pybroker.protocol.errors import ErrorCode
from pybroker.server import append_engine
from pybroker.server.daemon import Daemon
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.files import topic_ids
from pybroker.storage.logs import log_mover
from pybroker.storage.rings import session_note, tail_rings
from tests.harness.damage import harm
from tests.harness.waiting import until_async


def test_a_bit_in_partition_metadata_takes_its_partition_offline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config_for(tmp_path / "d")

    async def run() -> None:
        async with running(settings) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert (await client.produce("t", b"x")).error_code == 0
        path = tmp_path / "d" / "t-0" / "partition.metadata"
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] | 0x80]))
        (tmp_path / "d" / topic_ids.FILE_NAME).unlink()  # nothing else says of which topic it is
        async with running(settings) as daemon, connected(daemon) as client:
            assert daemon.services.replicas.offline_count == 1
            assert (await client.produce("t", b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "Nothing else says of which topic" in caplog.text

    asyncio.run(run())


@pytest.mark.parametrize("kind", harm.CONTENT_HARMS)
def test_partition_metadata_is_made_anew(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of the topic that the directory was opened as before; a flipped bit may make another id of it."""
    settings = config_for(tmp_path / "d")

    async def run() -> None:
        async with running(settings) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert (await client.produce("t", b"x")).error_code == 0
        path = tmp_path / "d" / "t-0" / "partition.metadata"
        before = path.read_bytes()
        harm.CONTENT_HARMS[kind](path)
        if kind == harm.FLIPPED:
            path.write_bytes(before[:-3] + (b"AA" if before[-3:-1] != b"AA" else b"BB") + before[-1:])
        async with running(settings) as daemon, connected(daemon) as client:
            assert (await client.offset("t", -1)).offset == 1
            assert path.read_bytes() == before
        assert "made anew" in caplog.text

    asyncio.run(run())


@pytest.fixture
def rings() -> Iterator[Path]:
    with TemporaryDirectory(dir="/dev/shm") as parent:
        yield Path(parent)


def test_a_full_disk_does_not_keep_a_broker_from_starting(
    tmp_path: Path, rings: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its logs have no rings until there is room; those that are open then get them."""
    settings = config_for(
        tmp_path / "d",
        pybroker_tail_ring_directory=str(rings),
        pybroker_tail_ring_hot_bytes_per_second="0",
        pybroker_append_engine="direct",
    )
    profile = dataclasses.replace(load_profile(settings), append_engine="direct", tail_ring_budget_bytes=64 << 20)
    tries: list[Path] = []

    def full(path: Path, *_: object) -> None:
        tries.append(path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    async def run() -> None:
        daemon = Daemon(settings, profile)
        with monkeypatch.context() as patched:
            patched.setattr(session_note, "write_durably", full)
            patched.setattr(append_engine, "_RESUME_INTERVAL_S", 0.05)
            await daemon.start()
            assert daemon.append_engine == "paced"
            async with connected(daemon) as client:
                await client.make_topic("t")
            await until_async(lambda: len(tries) > 3)
            assert daemon.append_engine == "paced"
            patched.undo()
            await until_async(lambda: daemon.append_engine == "direct")
        async with connected(daemon) as client:
            while ring_stats(daemon.native).taken_count == 0:
                assert (await client.produce("t", b"x" * 1000)).error_code == ErrorCode.NONE
        await daemon.stop()
        assert not (tmp_path / "d" / tail_rings.FILE_NAME).exists()

    asyncio.run(run())
    assert "the append engine is paced until there is room" in caplog.text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_stays_full_or_fails_keeps_the_engine_paced(
    tmp_path: Path, rings: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config_for(tmp_path / "d", pybroker_tail_ring_directory=str(rings))
    profile = dataclasses.replace(load_profile(settings), append_engine="direct", tail_ring_budget_bytes=64 << 20)
    numbers = [errno.ENOSPC]

    def fail(path: Path, *_: object) -> None:
        numbers.append(number)
        raise OSError(numbers[-2], os.strerror(numbers[-2]), str(path))

    async def run() -> None:
        daemon = Daemon(settings, profile)
        monkeypatch.setattr(session_note, "write_durably", fail)
        monkeypatch.setattr(append_engine, "_RESUME_INTERVAL_S", 0.01)
        await daemon.start()
        await until_async(lambda: len(numbers) > (5 if number == errno.ENOSPC else 2))
        await asyncio.sleep(0)
        assert daemon.append_engine == "paced"
        await daemon.stop()
        assert number == errno.ENOSPC or len(numbers) == 3, "it is not tried again"

    asyncio.run(run())
    assert ("the append engine stays paced" in caplog.text) == (number == errno.EIO)


async def fail_in_the_switch(daemon: Daemon, client: Client, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the log to `target`; renaming the copy there fails with EIO."""
    rename = os.rename

    def fail(source: Path, to: Path) -> None:
        if str(source).endswith("-future"):
            raise OSError(errno.EIO, "of a test", str(source))
        rename(source, to)

    monkeypatch.setattr(log_mover.os, "rename", fail)
    assert await alter(client, target) == 0
    await until_async(lambda: not daemon.services.mover._tasks)
    monkeypatch.undo()


def test_a_move_whose_target_fails_in_the_switch_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old dir was renamed, renaming the copy fails with EIO; a start without the target; the target is mended."""
    fast = {"log_segment_delete_delay_ms": "0"}

    async def run() -> None:
        async with filled(tmp_path, 3, **fast) as (daemon, client):
            await fail_in_the_switch(daemon, client, tmp_path / "b", monkeypatch)
        (tmp_path / "b").rename(tmp_path / "b-away")
        (tmp_path / "b").write_bytes(b"")  # no directory: as good as a dead disk
        async with running(config(tmp_path, **fast)) as daemon:
            assert daemon.services.replicas.offline_count == 1
            await asyncio.sleep(0.5)
        (tmp_path / "b").unlink()
        (tmp_path / "b-away").rename(tmp_path / "b")
        async with running(config(tmp_path, **fast)) as daemon, connected(daemon) as client:
            assert (await client.offset("t", -1)).offset == 3
            assert await read_all(client, 3) == [value(number) for number in range(3)]

    asyncio.run(run())


def test_a_stop_without_the_mark_is_not_told_as_lost_rings(
    tmp_path: Path, rings: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One write of a checkpoint fails at the end; every log was closed in order, and no ring held anything."""
    settings = config_for(tmp_path / "d", pybroker_tail_ring_directory=str(rings))
    profile = dataclasses.replace(load_profile(settings), append_engine="direct", tail_ring_budget_bytes=64 << 20)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def run(produce: bool) -> None:
        daemon = Daemon(settings, profile)
        await daemon.start()
        assert daemon.append_engine == "direct"
        if produce:
            async with connected(daemon) as client:
                await client.make_topic("t")
                await client.produce("t", b"x")
            monkeypatch.setattr(LogDirectory, "write_checkpoints", full)
        await daemon.stop()
        monkeypatch.undo()

    asyncio.run(run(True))
    caplog.clear()
    asyncio.run(run(False))
    assert "is lost" not in caplog.text


def test_a_move_whose_target_comes_back_as_an_empty_disk_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy had not taken its name when the broker ended. Its mount point is there, so no log dir is missing."""
    fast = {"log_segment_delete_delay_ms": "0"}

    async def run() -> None:
        async with filled(tmp_path, 3, **fast) as (daemon, client):
            await fail_in_the_switch(daemon, client, tmp_path / "b", monkeypatch)
        (tmp_path / "b").rename(tmp_path / "b-away")
        (tmp_path / "b").mkdir()
        for _ in range(2):
            async with running(config(tmp_path, **fast)) as daemon, connected(daemon) as client:
                assert daemon.services.replicas.offline_count == 1
                assert (await client.produce("t", b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        shutil.rmtree(tmp_path / "b")
        (tmp_path / "b-away").rename(tmp_path / "b")
        async with running(config(tmp_path, **fast)) as daemon, connected(daemon) as client:
            assert (await client.offset("t", -1)).offset == 3
            assert await read_all(client, 3) == [value(number) for number in range(3)]

    asyncio.run(run())
