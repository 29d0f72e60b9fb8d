"""A copy that follows a partition's directory: in the end it has what the original has, whatever became of that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pybroker.storage.dirs.directory_copy import DirectoryCopy, LogFile

FIRST, SECOND = f"{0:020d}.log", f"{100:020d}.log"


class Original:
    """A log's directory, and a copy of it."""

    def __init__(self, root: Path) -> None:
        self.path = root / "t-0"
        self.path.mkdir()
        self.copy = DirectoryCopy(self.path, root / "future")
        self.cut_count = 0
        self.generations: dict[str, int] = {}

    def append(self, name: str, data: bytes) -> None:
        with (self.path / name).open("ab") as file:
            file.write(data)

    def follow(self) -> int:
        """One pass; how many bytes it copied of segments."""
        counts: list[int] = []
        files = {
            path.name: LogFile(path.stat().st_size, self.generations.get(path.name, 0))
            for path in self.path.glob("*.log")
        }
        self.copy.follow(files, self.cut_count, counts.append)
        return sum(counts)

    def contents(self) -> list[dict[str, bytes]]:
        """Of both."""
        return [{path.name: path.read_bytes() for path in each.iterdir()} for each in (self.path, self.copy.target)]


@pytest.fixture
def original(tmp_path: Path) -> Original:
    return Original(tmp_path)


def check_equal(original: Original) -> None:
    source, target = original.contents()
    assert source == target


def test_what_was_appended_is_copied_and_nothing_twice(original: Original) -> None:
    original.append(FIRST, b"a" * 1000)
    assert original.follow() == 1000
    original.append(FIRST, b"b" * 10)
    original.append(SECOND, b"c" * 20)
    assert original.follow() == 30
    assert original.follow() == 0
    check_equal(original)
    assert original.copy.copied_bytes == 1030


def test_a_log_that_was_cut_and_grew_again_is_copied_anew(original: Original) -> None:
    original.append(FIRST, b"old-" * 250)
    original.append(SECOND, b"old-" * 10)
    original.follow()
    # The same file, longer than what was copied of it; and a segment that is not the log's any more.
    os.truncate(original.path / FIRST, 400)
    original.append(FIRST, b"new-" * 300)
    (original.path / SECOND).unlink()
    original.cut_count += 2
    assert original.follow() == 1600
    check_equal(original)
    assert original.follow() == 0, "once"


def test_a_segment_of_the_cleaners_is_another_one_in_spite_of_its_inode(original: Original) -> None:
    original.append(FIRST, b"a" * 100)
    original.append(SECOND, b"a" * 100)
    original.follow()
    # As if an inode were used again: what differs is neither that nor the size.
    (original.path / FIRST).write_bytes(b"b" * 100)
    original.generations[FIRST] = 2
    assert original.follow() == 100
    check_equal(original)
    assert original.follow() == 0


def test_a_pass_tells_how_much_was_missing(original: Original) -> None:
    def nothing(_count: int) -> None:
        pass

    original.append(FIRST, b"a" * 100)
    assert original.copy.follow({FIRST: LogFile(60)}, 0, nothing) == 60
    assert original.copy.follow({FIRST: LogFile(100)}, 0, nothing) == 40
    assert original.copy.follow({FIRST: LogFile(100)}, 0, nothing) == 0
    assert original.copy.follow({FIRST: LogFile(100)}, 1, nothing) == 100, "all, after a cut"
