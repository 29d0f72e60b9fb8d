"""A log dir as it is found and left: marks, checkpoints, directories set aside."""

from __future__ import annotations

import re
from pathlib import Path

from pybroker.native.partition import PartitionState
from pybroker.storage import clean_shutdown, offset_checkpoint
from pybroker.storage.log_directory import DELETED_SUFFIX, STRAY_SUFFIX, LogDirectory

DIRECTORY_ID = bytes(range(16))


def state(start: int, end: int, recovery_point: int) -> PartitionState:
    return PartitionState(start, end, end, end, recovery_point, recovery_point, 100, 3, 0, 0, 0)


def loaded(path: Path) -> LogDirectory:
    directory = LogDirectory(path, DIRECTORY_ID)
    directory.load()
    return directory


def test_finds_partitions_and_what_was_deleted(tmp_path: Path) -> None:
    for name in ("a-0", "with-dash-12", "__cluster_metadata-0", "a-1.0123-delete", "a-2.0123-stray", "plain"):
        (tmp_path / name).mkdir()
    (tmp_path / "b-0").write_text("a file, not a directory")
    directory = loaded(tmp_path)
    assert set(directory.partitions) == {("a", 0), ("with-dash", 12)}
    assert [path.name for path in directory.deleted] == ["a-1.0123-delete"]


def test_clean_once_only(tmp_path: Path) -> None:
    loaded(tmp_path).mark_clean(broker_epoch=7)
    again = loaded(tmp_path)
    assert again.clean
    assert again.previous_broker_epoch == 7
    assert clean_shutdown.read(tmp_path) is None, "a crash from here on must count as unclean"
    assert not loaded(tmp_path).clean


def test_checkpoints_come_back(tmp_path: Path) -> None:
    first = loaded(tmp_path)
    first.write_checkpoints({("t", 0): state(0, 50, 40), ("t", 1): state(5, 9, 9)})
    second = loaded(tmp_path)
    assert second.recovery_point(("t", 0)) == 40
    assert second.log_start_offset(("t", 1)) == 5
    assert second.log_start_offset(("t", 0)) == -1
    assert second.recovery_point(("other", 0)) == 0
    assert offset_checkpoint.read(tmp_path / offset_checkpoint.HIGH_WATERMARK) == {("t", 0): 50, ("t", 1): 9}


def test_unchanged_checkpoints_are_not_written_again(tmp_path: Path) -> None:
    directory = loaded(tmp_path)
    directory.write_checkpoints({("t", 0): state(0, 1, 1)})
    inode = (tmp_path / offset_checkpoint.RECOVERY_POINT).stat().st_ino
    directory.write_checkpoints({("t", 0): state(0, 1, 1)})
    assert (tmp_path / offset_checkpoint.RECOVERY_POINT).stat().st_ino == inode
    directory.write_checkpoints({("t", 0): state(0, 2, 2)})
    assert (tmp_path / offset_checkpoint.RECOVERY_POINT).stat().st_ino != inode


def test_a_damaged_checkpoint_counts_as_unknown(tmp_path: Path) -> None:
    (tmp_path / offset_checkpoint.RECOVERY_POINT).write_text("0\n5\nnonsense\n")
    assert loaded(tmp_path).recovery_point(("t", 0)) == 0


def test_set_aside_keeps_names_legal(tmp_path: Path) -> None:
    directory = loaded(tmp_path)
    topic = "x" * 249
    for suffix in (DELETED_SUFFIX, STRAY_SUFFIX):
        path = tmp_path / f"{topic}-3"
        path.mkdir()
        renamed = directory.set_aside((topic, 3), path, suffix)
        assert renamed.is_dir()
        assert len(renamed.name) == 255
        assert re.fullmatch(rf"x+-3\.[0-9a-f]{{32}}{suffix}", renamed.name)
    assert loaded(tmp_path).partitions == {}
