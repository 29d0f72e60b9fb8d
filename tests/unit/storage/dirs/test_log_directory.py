"""A log dir as it is found and left: marks, checkpoints, directories set aside."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pybroker.native.partition import PartitionState
from pybroker.storage.dirs.log_directory import DELETED_SUFFIX, STRAY_SUFFIX, LogDirectory
from pybroker.storage.files import clean_shutdown, offset_checkpoint

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


@pytest.mark.parametrize(
    ("last", "recovery_point"),
    [
        (lambda directory: directory.write_checkpoints({("t", 0): state(0, 9, 9)}), 9),
        (lambda directory: directory.mark_clean(7), 5),
    ],
    ids=["checkpoints", "mark"],
)
def test_a_write_that_nobody_waits_for_any_more_comes_before_the_next_one(
    tmp_path: Path, last: Callable[[LogDirectory], None], recovery_point: int
) -> None:
    """A task that is cancelled while a thread writes leaves the thread behind."""
    directory = loaded(tmp_path)
    entered, may_write = threading.Event(), threading.Event()
    save = directory.gap_checkpoint.save

    def slow_save() -> None:
        if not entered.is_set():
            entered.set()
            assert may_write.wait(60)
        save()

    directory.gap_checkpoint.save = slow_save  # type: ignore[method-assign]
    done: list[str] = []

    def run(name: str, work: Callable[[LogDirectory], None]) -> None:
        work(directory)
        done.append(name)

    left = threading.Thread(target=run, args=("left", lambda each: each.write_checkpoints({("t", 0): state(0, 5, 5)})))
    left.start()
    assert entered.wait(60)
    next_one = threading.Thread(target=run, args=("next", last))
    next_one.start()
    next_one.join(0.3)  # as long as nothing makes it wait it ends here, and is the first
    may_write.set()
    left.join()
    next_one.join()
    assert done == ["left", "next"]
    assert loaded(tmp_path).recovery_point(("t", 0)) == recovery_point


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
