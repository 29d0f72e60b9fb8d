"""10,000 random single-bit flips over a closed log dir: `pybroker log check` finds each wherever the format allows it.

Those that are not are in bytes which docs/log-files.md lists, and none of them is covered by a CRC.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage" / "offline"))

import pytest
from offline_dirs import copy_of_kafka_dir, faults, flips, is_unprotected
from test_repair import repair_flipped_bits

COUNT = 10_000
# Bytes without protection are few; a check that stopped looking would find far less.
MOST_MISSED = 50


def test_ten_thousand_flipped_bits(tmp_path: Path) -> None:
    log_dir = copy_of_kafka_dir(tmp_path)
    missed: Counter[str] = Counter()
    wrong: list[str] = []
    for path, bit in flips(log_dir, COUNT, seed=4):
        if not faults(log_dir):
            missed[path.name] += 1
            if not is_unprotected(path, bit):
                wrong.append(f"{path}, bit {bit}")
    print(f"{COUNT - missed.total()} of {COUNT} found; the others: {dict(missed)}")
    assert wrong == []
    assert missed.total() <= MOST_MISSED


def test_repair_keeps_all_other_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    repair_flipped_bits(copy_of_kafka_dir(tmp_path), tmp_path, 1000, seed=5)
