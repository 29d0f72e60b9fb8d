"""A disk without room: what a stop says of it, and that deletions go on. The failures are made up."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_setup import TOPIC_ID, Setup, setup
from ring_files import write_ring, write_session

from pybroker.native.bindings import lib
from pybroker.native.errors import CloseUnfinished, NativeError, SyncFailed
from pybroker.native.partition import NativePartition, Segment
from pybroker.storage.dirs.full_disk import is_full
from pybroker.storage.files import clean_shutdown
from pybroker.storage.files.partition_metadata import FILE_NAME as PARTITION_METADATA
from pybroker.storage.logs import closing, log_maintenance
from pybroker.storage.logs.retention import RetentionDecision
from pybroker.storage.rings import tail_rings

FULL = NativeError(-errno.ENOSPC)
BROKEN = NativeError(-errno.EIO)
UNFINISHED = CloseUnfinished(lib.PB_CLOSE_UNFINISHED, "no room for an index")


def test_only_a_lack_of_room_is_one() -> None:
    assert is_full(FULL) and is_full(NativeError(-errno.EDQUOT)) and is_full(OSError(errno.ENOSPC, "full"))
    assert not is_full(BROKEN)
    assert not is_full(NativeError(56))
    assert not is_full(SyncFailed(-errno.ENOSPC)), "what was to be synced had been promised its room"


def failing(call: Callable[..., None], error: NativeError, victim: NativePartition) -> Callable[..., None]:
    """`call` of a NativePartition, which is made and then fails for one partition."""

    def fail(native: NativePartition, **arguments: Any) -> None:
        call(native, **arguments)
        if native is victim:
            raise error

    return fail


@pytest.mark.parametrize("count", [2, closing.TOGETHER])
@pytest.mark.parametrize("error", [UNFINISHED, BROKEN])
def test_a_stop_names_what_may_be_lost_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rings: Path, count: int, error: NativeError
) -> None:
    """With few logs, which are closed one by one, and with many, which are settled first."""
    call = "close" if count < closing.TOGETHER else "settle"

    async def run() -> list[tuple[str, int]]:
        made = Setup(tmp_path, ("d",))
        await made.manager.load()
        made.manager._broker.can_sync_log_dir = lambda path: True  # type: ignore[method-assign]
        made.manager._broker.sync_log_dir = lambda path: None  # type: ignore[method-assign]
        logs = [await made.open(partition=index) for index in range(count)]
        replaced = failing(getattr(NativePartition, call), error, logs[1].native)
        monkeypatch.setattr(NativePartition, call, replaced)
        write_session(tmp_path / "d", rings)
        await made.close()
        made.native.stop()
        made.native.close()
        return made.manager.at_risk

    at_risk = asyncio.run(run())
    assert at_risk == ([] if error is UNFINISHED else [("t", 1)])
    assert clean_shutdown.read(tmp_path / "d") is None
    # Where nothing is lost the next start must not miss rings.
    assert (tail_rings.RingSession.read(tmp_path / "d") is None) is (error is UNFINISHED)


def test_many_logs_whose_file_system_cannot_be_synced_are_all_at_risk(tmp_path: Path) -> None:
    """Also those that had no room for their indexes: nobody else brings their records to the disk."""

    def fail(path: str) -> None:
        raise NativeError(-errno.ENOSPC)

    async def run() -> list[tuple[str, int]]:
        made = Setup(tmp_path, ("d",))
        await made.manager.load()
        made.manager._broker.can_sync_log_dir = lambda path: True  # type: ignore[method-assign]
        made.manager._broker.sync_log_dir = fail  # type: ignore[method-assign]
        for index in range(closing.TOGETHER):
            await made.open(partition=index)
        await made.close()
        made.native.stop()
        made.native.close()
        return made.manager.at_risk

    assert sorted(asyncio.run(run())) == [("t", index) for index in range(closing.TOGETHER)]


@pytest.mark.parametrize(("content", "stays"), [(b"", False), (b"acknowledged", True)])
def test_rings_are_looked_for_at_the_next_start_when_one_has_something(
    tmp_path: Path, rings: Path, content: bytes, stays: bool
) -> None:
    directory_id = bytes([1]) * 16
    write_session(tmp_path, rings)
    ring = {"start": 0, "directory_id": directory_id, "topic_id": TOPIC_ID}
    write_ring(rings / "1.ring", content, **ring)  # type: ignore[arg-type]
    tail_rings.forget_empty(tmp_path, directory_id)
    assert (tail_rings.RingSession.read(tmp_path) is not None) is stays
    assert (rings / "1.ring").exists()


def test_a_damaged_ring_is_looked_for_at_the_next_start(tmp_path: Path, rings: Path) -> None:
    write_session(tmp_path, rings)
    write_ring(rings / "1.ring", b"acknowledged", start=0, directory_id=bytes(16), topic_id=TOPIC_ID)
    content = bytearray((rings / "1.ring").read_bytes())
    content[-4096 + 20] ^= 1
    (rings / "1.ring").write_bytes(content)
    tail_rings.forget_empty(tmp_path, bytes(16))
    assert tail_rings.RingSession.read(tmp_path) is not None


def test_a_derived_file_that_cannot_be_written_is_no_loss(tmp_path: Path) -> None:
    """Whatever the reason; here a directory is in its place."""

    async def run() -> list[tuple[str, int]]:
        made = Setup(tmp_path, ("d",))
        await made.manager.load()
        log = await made.open()
        await made.append(log)
        (log.path / f"{0:020d}.index").unlink()
        (log.path / f"{0:020d}.index").mkdir()
        await made.close()
        made.native.stop()
        made.native.close()
        return made.manager.at_risk

    assert asyncio.run(run()) == []
    assert clean_shutdown.read(tmp_path / "d") is None


# ---- deletions -----------------------------------------------------------------------------------------------------


def full_rename(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "rename", fail)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_topic_goes_without_room_for_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            await made.append(log)
            full_rename(code, monkeypatch)
            await made.manager.delete(log)
            assert not log.path.exists()
            assert made.manager.directories[0].partitions == {}
            assert (await made.open()).native.state.log_end_offset == 0

    asyncio.run(run())


def test_a_disk_that_fails_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            with monkeypatch.context() as patch:
                full_rename(errno.EIO, patch)
                with pytest.raises(OSError, match="Input/output"):
                    await made.manager.delete(log)
            assert log.path.exists()

    asyncio.run(run())


@pytest.mark.parametrize(("topic_id", "goes"), [(TOPIC_ID, True), (bytes(15) + b"x", False)])
def test_the_files_of_a_log_that_could_not_be_opened_go_with_its_topic(
    tmp_path: Path, topic_id: bytes, goes: bool
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.append(await made.open())
        segment = tmp_path / "d" / "t-0" / f"{0:020d}.log"
        segment.unlink()
        segment.mkdir()
        (segment / "inside").touch()
        async with setup(tmp_path) as made:
            with pytest.raises(NativeError):
                await made.open()
            await made.manager.delete_unopened(("t", 0), topic_id)
            assert (tmp_path / "d" / "t-0").exists() is not goes
            set_aside = list((tmp_path / "d").glob("t-0.*-delete"))
            assert len(set_aside) == goes
            for path in set_aside:
                await made.manager.remove(path)
                assert not path.exists()

    asyncio.run(run())


def test_a_log_without_a_topic_id_that_can_be_read_stays(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.open()
        (tmp_path / "d" / "t-0" / PARTITION_METADATA).write_text("version: 9\n")
        async with setup(tmp_path) as made:
            made.manager._unopened["t", 0] = made.manager.directories[0]
            await made.manager.delete_unopened(("t", 0), TOPIC_ID)
            assert (tmp_path / "d" / "t-0").exists()

    asyncio.run(run())


# ---- retention -----------------------------------------------------------------------------------------------------


class FullNative:
    """Three segments, and no room for a fourth."""

    def __init__(self, error: NativeError) -> None:
        self._error = error
        self.deleted_before: list[int] = []

    def segments(self) -> list[Segment]:
        return [Segment(base, base + 10, 100, 0, 0) for base in (0, 10, 20)]

    def roll(self) -> None:
        raise self._error

    def delete_before(self, offset: int) -> int:
        self.deleted_before.append(offset)
        return offset // 10


DECISION = RetentionDecision(delete_before=30, roll=True, size_count=0, age_count=3, start_offset_count=0)


def test_retention_deletes_what_it_can_where_there_is_no_room_for_a_new_segment() -> None:
    native: Any = FullNative(FULL)
    assert log_maintenance._delete(native, DECISION) == 2
    assert native.deleted_before == [20]


def test_retention_tells_other_failures() -> None:
    native: Any = FullNative(BROKEN)
    with pytest.raises(NativeError):
        log_maintenance._delete(native, DECISION)
    assert native.deleted_before == []
