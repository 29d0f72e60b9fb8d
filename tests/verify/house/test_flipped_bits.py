"""10,000 random single-bit flips over a closed log dir: `pybroker log check` finds each wherever the format allows it.

Those that are not are in bytes which docs/log-files.md lists, and none of them is covered by a CRC.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "storage" / "offline"))

import pytest
from offline_dirs import copy_of_kafka_dir, flips, is_unprotected, noticed
from test_repair import repair_flipped_bits

from tests.harness.rounds import Rounds

ROUNDS, FLIPS = 50, 200
REPAIR_ROUNDS, REPAIRS = 20, 50
# Bytes without protection are few; a check that stopped looking would find far less.
MOST_MISSED = 50


def test_ten_thousand_flipped_bits(tmp_path: Path, rounds: Rounds) -> None:
    log_dir = copy_of_kafka_dir(tmp_path)
    for each in rounds.left(ROUNDS, seed=4):
        with each:
            missed: Counter[str] = Counter()
            wrong: list[str] = []
            for path, bit in flips(log_dir, FLIPS, each.seed):
                if not noticed(log_dir):
                    missed[path.name] += 1
                    if not is_unprotected(path, bit):
                        wrong.append(f"{path}, bit {bit}")
            each.facts |= {"missed": missed.total(), "files": dict(missed)}
            assert wrong == []
    rounds.require_all()
    assert rounds.total("missed") <= MOST_MISSED


def test_repair_keeps_all_other_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: Rounds) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    log_dir = copy_of_kafka_dir(tmp_path)
    for each in rounds.left(REPAIR_ROUNDS, seed=5):
        with each:
            work_dir = tmp_path / f"round-{each.number}"
            work_dir.mkdir()
            repair_flipped_bits(log_dir, work_dir, REPAIRS, each.seed)
    rounds.require_all()
