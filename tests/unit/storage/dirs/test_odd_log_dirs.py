"""Log dirs with what an interrupted move, a person or a damaged disk has left there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from log_setup import TOPIC_ID, Setup

from pybroker.config.topic import TopicConfig
from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.dirs import log_directory
from pybroker.storage.dirs.interrupted_moves import settle_moves
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import DirectoryOffline, StorageError
from pybroker.storage.files import partition_metadata
from pybroker.storage.files.applied_metadata import AppliedMetadata

ID = "0123456789abcdef0123456789abcdef"
METADATA = AppliedMetadata("c", 1, 1)


def half_made(root: Path) -> tuple[Path, Path]:
    """What `_switch` leaves between its two renames: the old dir renamed, the copy not yet."""
    original, future = root / "a" / f"t-0.{ID}-delete", root / "b" / f"t-0.{ID}-future"
    for place in (original, future):
        place.mkdir(parents=True)
        (place / "00000000000000000000.log").write_bytes(b"records")
        partition_metadata.write(place, TOPIC_ID)
    return original, future


def loaded(*paths: Path) -> list[LogDirectory]:
    found = [LogDirectory(path, bytes([number + 1]) * 16) for number, path in enumerate(paths)]
    for each in found:
        each.load()
    return found


def test_future_survives_while_the_source_dir_is_out_of_service(tmp_path: Path) -> None:
    _original, future = half_made(tmp_path)
    settle_moves(loaded(tmp_path / "b"))  # `a`, from which the log was moved away, is dead
    assert future.exists()


def test_original_survives_while_the_target_dir_is_out_of_service(tmp_path: Path) -> None:
    original, _future = half_made(tmp_path)

    async def run() -> None:
        made = Setup(tmp_path, ("a",))
        made.manager.failures.offline[tmp_path / "b"] = "Input/output error"
        delays: list[Path] = []
        made.manager.remove_later = lambda path, delay_ms=None: delays.append(path)  # type: ignore[method-assign]
        try:
            await made.manager.load()
            assert original not in delays
        finally:
            made.native.stop()
            made.native.close()

    asyncio.run(run())


def test_a_start_without_the_target_and_one_with_it_keep_a_copy(tmp_path: Path) -> None:
    """Start 1 without b (it failed in the switch) removes a's; start 2 with b removes b's."""
    _original, _future = half_made(tmp_path)

    async def start(*names: str) -> None:
        made = Setup(tmp_path, names)
        if "b" not in names:
            made.manager.failures.offline[tmp_path / "b"] = "Input/output error"
        removals: list[Path] = []
        made.manager.remove_later = lambda path, delay_ms=None: removals.append(path)  # type: ignore[method-assign]
        try:
            await made.manager.load()
            for path in removals:  # 60 s later
                await made.manager.remove(path)
            await made.manager.close(1, 6)
        finally:
            made.native.stop()
            made.native.close()

    asyncio.run(start("a"))
    asyncio.run(start("a", "b"))
    left = [str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*.log")]
    assert left


def test_a_directory_that_no_broker_named_is_not_removed(tmp_path: Path) -> None:
    mine = tmp_path / "d" / "backup-before-delete"
    mine.mkdir(parents=True)
    (mine / "precious").write_bytes(b"x")
    (directory,) = loaded(tmp_path / "d")
    assert mine not in directory.deleted


def test_a_link_is_not_followed_by_removal(tmp_path: Path) -> None:
    mine = tmp_path / "elsewhere"
    mine.mkdir()
    (mine / "precious").write_bytes(b"x")
    link = tmp_path / f"t-0.{ID}-delete"
    link.symlink_to(mine)
    log_directory.remove_gently(link, lambda path: None, lambda: False)
    assert not link.is_symlink()
    assert (mine / "precious").exists()


def test_a_second_spelling_does_not_hide_a_partition(tmp_path: Path) -> None:
    (tmp_path / "d" / "t-0").mkdir(parents=True)
    (tmp_path / "d" / "t-0" / "00000000000000000000.log").write_bytes(b"records")
    (tmp_path / "d" / "t-00").mkdir()
    (directory,) = loaded(tmp_path / "d")
    assert directory.partitions["t", 0].name == "t-0"


def test_partition_metadata_that_is_no_text_is_a_storage_error(tmp_path: Path) -> None:
    text = f"version: 0\ntopic_id: {uuid_to_text(TOPIC_ID)}".encode()
    (tmp_path / "partition.metadata").write_bytes(text[:-1] + bytes([text[-1] | 0x80]))
    with pytest.raises(StorageError):
        partition_metadata.read(tmp_path)


def is_empty(directory: Path) -> bool:
    return not any(directory.glob("t-0*"))


@asynccontextmanager
async def two_dirs(root: Path) -> AsyncIterator[tuple[Setup, list[Path]]]:
    """A start with log dirs a and b, and what it removes."""
    made = Setup(root, ("a", "b"))
    removed: list[Path] = []
    made.manager.remove_later = lambda path, delay_ms=None: removed.append(path)  # type: ignore[method-assign]
    try:
        await made.manager.load()
        yield made, removed
        await made.close()
    finally:
        made.native.stop()
        made.native.close()


async def open_again(made: Setup, directory_id: bytes, topic_id: bytes = TOPIC_ID) -> None:
    config = TopicConfig.resolve({}, made.config)
    await made.manager.open(("t", 0), topic_id, directory_id, 0, config, is_new=False)


@pytest.mark.parametrize("known_as", [bytes([1]) * 16, bytes([9]) * 16], ids=["old dir", "lost disk"])
def test_a_move_whose_target_has_another_disk_now_loses_nothing(tmp_path: Path, known_as: bytes) -> None:
    """The target's mount point is there and empty, so no log dir is out of service."""
    original, future = half_made(tmp_path)
    future.rename(tmp_path / "away")

    async def start() -> None:
        async with two_dirs(tmp_path) as (made, removed):
            for _ in range(2):  # whenever metadata speaks of it
                with pytest.raises(DirectoryOffline):
                    await open_again(made, known_as)
            await made.manager.set_strays_aside(lambda key: True, METADATA)
            assert removed == []
            assert not (tmp_path / "a" / "t-0").exists()
            assert is_empty(tmp_path / "b")

    asyncio.run(start())
    assert original.exists()
    (tmp_path / "away").rename(future)

    async def start_with_it() -> None:
        async with two_dirs(tmp_path) as (made, removed):
            assert made.manager.directories[1].partitions == {("t", 0): tmp_path / "b" / "t-0"}
            assert removed == [original]

    asyncio.run(start_with_it())


@pytest.mark.parametrize(
    ("directory_id", "topic_id"),
    [(bytes(16), TOPIC_ID), (bytes([1]) * 16, bytes(15) + b"\7")],
    ids=["comes back to the broker", "another topic"],
)
def test_what_was_deleted_before_a_start_goes(tmp_path: Path, directory_id: bytes, topic_id: bytes) -> None:
    original, future = half_made(tmp_path)
    future.rename(tmp_path / "away")

    async def start() -> None:
        async with two_dirs(tmp_path) as (made, removed):
            assert removed == []
            await open_again(made, directory_id, topic_id)
            await made.manager.set_strays_aside(lambda key: True, METADATA)
            assert removed == [original]

    asyncio.run(start())


def test_what_nobody_misses_goes(tmp_path: Path) -> None:
    original, future = half_made(tmp_path)
    future.rename(tmp_path / "away")

    async def start() -> None:
        async with two_dirs(tmp_path) as (made, removed):
            await made.manager.set_strays_aside(lambda key: False, METADATA)
            assert removed == [original]

    asyncio.run(start())
