"""What a host takes away from its guest, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pybroker.profiles.measurement.stolen import StolenTime, stolen_seconds

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("stat", "seconds"),
    [
        (
            f"cpu  1 2 3 4 5 6 7 99 0 0\ncpu0 1 2 3 4 5 6 7 {3 * TICKS} 0 0\ncpu1 1 2 3 4 5 6 7 0 0 0\nintr 1 2 3\n",
            {"cpu0": 3.0, "cpu1": 0.0},
        ),
        ("cpu0 1 2 3 4\n", {}),
        ("cpu0 1 2 3 4 5 6 7 much 0 0\n", {}),
        ("\n", {}),
        ("", {}),
    ],
)
def test_what_the_kernel_tells(stat: str, seconds: dict[str, float]) -> None:
    assert stolen_seconds(stat) == seconds


def test_this_kernel_tells_of_every_cpu() -> None:
    assert len(stolen_seconds(Path("/proc/stat").read_text())) == os.cpu_count()


def watched(*moments: tuple[float, dict[str, float]]) -> str | None:
    return StolenTime(iter(moments).__next__).note("while it rained")


def test_a_host_that_takes_a_cpu_is_named() -> None:
    note = watched((100.0, {"cpu0": 7.0, "cpu1": 5.0}), (110.0, {"cpu0": 7.1, "cpu1": 7.7}))
    assert note is not None
    assert "the host took a CPU away for 27% of the time while it rained" in note


def test_little_is_not_worth_a_word() -> None:
    assert watched((100.0, {"cpu0": 7.0}), (110.0, {"cpu0": 7.1})) is None
    assert watched((100.0, {"cpu0": 7.0}), (100.0, {"cpu0": 9.0})) is None
    assert watched((100.0, {}), (110.0, {})) is None
