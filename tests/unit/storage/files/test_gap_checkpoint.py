"""`.pybroker_gap_offsets`: what of a log's gaps is the cleaner's, and for how long that holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from log_setup import setup

from pybroker.native.partition import PartitionState
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.files import offset_checkpoint
from pybroker.storage.files.gap_checkpoint import FILE_NAME, UNKNOWN, GapCheckpoint

T = ("t", 0)


def _loaded(path: Path) -> LogDirectory:
    directory = LogDirectory(path, bytes(range(16)))
    directory.load()
    return directory


def _state(end: int) -> PartitionState:
    return PartitionState(0, end, end, end, end, end, 100, 3, 0, 0, 0)


def test_what_was_noted_comes_back_after_a_kill_and_never_falls(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    directory = _loaded(tmp_path)
    assert directory.gap_checkpoint.get(T) == UNKNOWN
    directory.gap_checkpoint.note(T, 40)
    directory.gap_checkpoint.note(T, 30)
    directory.gap_checkpoint.note(("gone", 0), 7)
    directory.write_checkpoints({T: _state(50)})
    again = _loaded(tmp_path)
    assert [again.gap_checkpoint.get(key) for key in (T, ("gone", 0))] == [40, UNKNOWN]


def test_a_stop_in_order_lets_apache_kafka_clean(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    directory = _loaded(tmp_path)
    directory.gap_checkpoint.note(T, 40)
    directory.gap_checkpoint.save()
    directory.mark_clean(broker_epoch=1)
    assert not (tmp_path / FILE_NAME).exists()


def test_the_file_of_an_earlier_life_is_not_believed_after_somebody_elses_stop_in_order(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    directory = _loaded(tmp_path)
    directory.gap_checkpoint.note(T, 40)
    directory.gap_checkpoint.save()
    (tmp_path / ".kafka_cleanshutdown").write_text("")
    assert _loaded(tmp_path).gap_checkpoint.get(T) == UNKNOWN
    assert _loaded(tmp_path).gap_checkpoint.get(T) == UNKNOWN, "and is gone when that start ends in a crash"


def test_a_log_that_is_gone_leaves_nothing_to_the_next_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    directory = _loaded(tmp_path)
    directory.gap_checkpoint.note(T, 40)
    directory.gap_checkpoint.save()
    directory.forget(T)
    directory.write_checkpoints({})
    assert offset_checkpoint.read(tmp_path / FILE_NAME) == {}


def test_behind_a_cut_nothing_is_the_cleaners(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    directory = _loaded(tmp_path)
    directory.gap_checkpoint.note(T, 40)
    directory.write_checkpoints({T: _state(35)})
    directory.write_checkpoints({T: _state(60)})
    assert _loaded(tmp_path).gap_checkpoint.get(T) == 35


def test_a_damaged_file_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / FILE_NAME).write_text("0\nnonsense\n")
    assert _loaded(tmp_path).gap_checkpoint.get(T) == UNKNOWN
    assert FILE_NAME in caplog.text


def test_an_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
    checkpoint = GapCheckpoint(tmp_path)
    checkpoint.note(T, 1)
    checkpoint.save()
    inode = (tmp_path / FILE_NAME).stat().st_ino
    checkpoint.note(T, 1)
    checkpoint.save()
    assert (tmp_path / FILE_NAME).stat().st_ino == inode


def test_a_move_takes_it_along(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, "a", "b") as made:
            log = await made.open()
            source = log.directory
            (target,) = set(made.manager.directories) - {source}
            await made.append(log)
            source.gap_checkpoint.note(T, 1)
            await made.manager.relocate(log, target, target.path / "t-0")
            assert offset_checkpoint.read(target.path / FILE_NAME) == {T: 1}
            assert offset_checkpoint.read(source.path / FILE_NAME) == {}

    asyncio.run(run())


def test_it_is_on_the_disk_soon_after_a_compacted_log_was_opened(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, "a") as made:
            made.maintenance.start()
            await made.open(cleanup_policy="compact")
            for _ in range(6_000):
                if (tmp_path / "a" / FILE_NAME).exists():
                    break
                await asyncio.sleep(0.01)
            assert offset_checkpoint.read(tmp_path / "a" / FILE_NAME) == {T: 0}
            await made.maintenance.stop()

    asyncio.run(run())
