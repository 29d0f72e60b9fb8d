"""`LogEnds` whose file another thread removes, as on a full disk, between a caller's look at it and its next one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pybroker.storage.files.log_ends import FILE_NAME, EndsFile, LogEnds, RecordedEnds
from pybroker.storage.files.offset_checkpoint import TopicPartition

KEY = ("t", 0)
ENDS = RecordedEnds(b"i" * 16, 0, 0, 100, 100, ((0, 4096),))


def saved(log_dir: Path, ends: LogEnds) -> None:
    """With a file that has one log."""
    ends.load(clean_epoch=None)
    ends.save({KEY: ENDS})
    assert (log_dir / FILE_NAME).exists()


def test_a_file_that_was_removed_is_not_lowered_and_comes_back_with_the_next_checkpoint(tmp_path: Path) -> None:
    ends = LogEnds(tmp_path)
    saved(tmp_path, ends)
    lower = ENDS._replace(segments=())
    ends.remove()
    ends.lower({KEY: lower})
    assert not (tmp_path / FILE_NAME).exists()
    ends.save({KEY: lower})
    found = EndsFile.read(tmp_path)
    assert found is not None
    assert found.ends == {KEY: lower}


class Removing(LogEnds):
    """The file is gone after each look at it."""

    _is_removing = False
    _kept: EndsFile | None = None

    @property
    def _saved(self) -> EndsFile | None:  # type: ignore[override]
        kept = self._kept
        if self._is_removing:
            self._kept = None
        return kept

    @_saved.setter
    def _saved(self, value: EndsFile | None) -> None:
        self._kept = value


@pytest.mark.parametrize("ask", [LogEnds.last_saved, LogEnds.speaks_of_gone])
def test_a_file_that_is_removed_meanwhile_fails_nobody(
    tmp_path: Path, ask: Callable[[LogEnds, TopicPartition], object]
) -> None:
    ends = Removing(tmp_path)
    saved(tmp_path, ends)
    expected = ask(ends, KEY)
    ends._is_removing = True
    assert ask(ends, KEY) == expected, "from the one look"
    ask(ends, KEY)
