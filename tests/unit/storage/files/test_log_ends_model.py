"""Seeds of the model in which logs are cut, cleaned, moved and made anew, with kills and power cuts: no false alarm."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from pybroker.storage.logs import ends_keeper, log_loss
from tests.harness import ends_model
from tests.harness.ends_model import Broken, play

SEEDS = 300


@pytest.fixture
def root() -> Iterator[Path]:
    """On tmpfs, where syncs cost nothing."""
    path = Path("/dev/shm") / f"pybroker-test-{uuid4().hex}"
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


def _play_all(root: Path, seeds: range) -> int:
    planted = 0
    for seed in seeds:
        place = root / str(seed)
        planted += play(place, seed)
        shutil.rmtree(place)
    return planted


def test_changes_of_ours_are_no_losses_and_planted_losses_are_found(root: Path) -> None:
    assert _play_all(root, range(SEEDS)) > SEEDS // 10


def _no_note(self: ends_model.ModelLog, offset: int) -> None:
    self._noted = self.generation


async def _tell_nobody(*_: object) -> None:
    return


def _last_cut_alone(self: ends_model.ModelLog) -> tuple[int, int]:
    return _read_note(self)[0], ends_model.NEVER_CUT


_read_note = ends_model.ModelLog._read_note


@pytest.mark.parametrize(
    "fault",
    [
        "cuts are not noted",
        "earlier cuts are forgotten",
        "deletions are not",
        "cleaning is not",
        "what an older broker deletes counts",
        "nothing is missed",
    ],
)
def test_the_model_finds_what_it_is_for(root: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "cuts are not noted":
        monkeypatch.setattr(ends_model.ModelLog, "_note_cut", _no_note)
    elif fault == "earlier cuts are forgotten":
        monkeypatch.setattr(ends_model.ModelLog, "_read_note", _last_cut_alone)
    elif fault == "deletions are not":
        monkeypatch.setattr(ends_keeper.EndsKeeper, "before_deletion", _tell_nobody)
    elif fault == "cleaning is not":
        monkeypatch.setattr(ends_keeper.EndsKeeper, "before_cleaning", _tell_nobody)
    elif fault == "what an older broker deletes counts":
        monkeypatch.setattr(ends_keeper, "without_deleted", lambda path, recorded: recorded)
    else:
        monkeypatch.setattr(log_loss, "_is_short", lambda *_: False)
    with pytest.raises(Broken):
        _play_all(root, range(SEEDS))
