"""The table behind the micro benchmarks."""

from __future__ import annotations

import pytest

from bench.micro.summary import table


def test_figures_are_of_one_call() -> None:
    seconds = [1e-3] * 10 + [1.1e-3] * 10
    header, line = table([("append", {"calls": 1000, "payload_bytes": 500}, seconds)])
    assert header.split()[:4] == ["ns", "a", "call", "median"]
    assert line.split() == ["append", "1,050.0", "1,000.0", "..", "1,100.0", "9.5", "%", "+9.5", "%", "476"]


@pytest.mark.parametrize("rounds", [1, 5])
def test_few_rounds_have_no_interval(rounds: int) -> None:
    assert "too few rounds" in table([("append", {"calls": 1}, [1.0] * rounds)])[1]


def test_nothing_measured_makes_no_table() -> None:
    assert table([]) == []
