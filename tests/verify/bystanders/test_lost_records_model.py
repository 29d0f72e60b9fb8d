"""10,000 seeds of logs that are cut, cleaned, moved and made anew, with kills and power cuts: no false alarm."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.harness.ends_model import play

SEEDS = 10_000


@pytest.fixture
def root() -> Iterator[Path]:
    """On tmpfs, where syncs cost nothing."""
    path = Path("/dev/shm") / f"pybroker-test-{uuid4().hex}"
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_changes_of_ours_are_no_losses_and_planted_losses_are_found(root: Path) -> None:
    planted = 0
    for seed in range(SEEDS):
        place = root / str(seed)
        planted += play(place, seed)
        shutil.rmtree(place)
    assert planted > SEEDS // 10
