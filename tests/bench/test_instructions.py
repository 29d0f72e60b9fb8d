"""The gate of instruction counts: what passes it, what fails, and how the baseline changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.micro import instructions
from bench.micro.instructions import CannotCount, compare, load, total_of, update

KEY = "gcc 12.2.0 x86_64-linux-gnu glibc 2.36"


@pytest.mark.parametrize(
    ("now", "failed", "gained"),
    [(1000, [], []), (1050, [], []), (1051, ["append"], []), (950, [], []), (949, [], ["append"])],
)
def test_five_percent_more_fail_and_five_percent_less_are_told(now: int, failed: list[str], gained: list[str]) -> None:
    verdict = compare({"append": now, "read": 7}, {"append": 1000, "read": 7})
    assert (verdict.failed, verdict.gained) == (failed, gained)


def test_functions_without_a_counterpart_fail() -> None:
    verdict = compare({"new": 1, "same": 5}, {"gone": 2, "same": 5})
    assert verdict.failed == ["gone", "new"]


def test_a_new_baseline_keeps_why_and_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    update(path, "other compiler", {"append": 5}, "the first count with it")
    update(path, KEY, {"append": 1000, "old": 3}, "the first count with it")
    update(path, KEY, {"append": 1100, "read": 4}, "appends check their checksums twice")
    baselines = load(path)
    assert baselines["other compiler"]["instructions"] == {"append": 5}
    assert baselines[KEY]["instructions"] == {"append": 1100, "read": 4}
    first, second = baselines[KEY]["reasons"]
    assert (first["reason"], first["changes"]) == ("the first count with it", {})
    assert second["reason"] == "appends check their checksums twice"
    assert second["changes"] == {"append": "+10.00 %", "read": "new", "old": "gone"}


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """The baseline is a file of the test, the counts are what the test puts into the result."""
    counted = {"append": 1000}
    monkeypatch.setattr(instructions, "BASELINE", tmp_path / "instructions.json")
    monkeypatch.setattr(instructions, "ROOT", tmp_path)
    monkeypatch.setattr(instructions, "compiler", lambda command: KEY)
    monkeypatch.setattr(instructions, "load", lambda path=None: load(path or tmp_path / "instructions.json"))
    monkeypatch.setattr(instructions, "count", lambda: dict(counted))
    return counted


def test_a_compiler_without_a_baseline_is_no_pass(gate: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    assert gate
    assert instructions.main([]) == 3
    assert f"no baseline for {KEY}" in capsys.readouterr().err


def test_a_baseline_without_a_reason_is_refused(gate: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert gate
    monkeypatch.setattr(instructions, "_ask", lambda: "")
    assert instructions.main(["baseline"]) == 2
    assert instructions.main(["baseline", "--reason", "faster"]) == 2
    assert not instructions.BASELINE.exists()


def test_from_a_baseline_to_a_failure_and_on(gate: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    assert instructions.main(["baseline", "--reason", "the first count with it"]) == 0
    assert instructions.main([]) == 0
    gate["append"] = 1100
    assert instructions.main([]) == 1
    assert "FAILED: append" in capsys.readouterr().err
    assert instructions.main(["baseline", "--reason", "appends check their checksums twice"]) == 0
    assert instructions.main([]) == 0


def test_a_dump_without_totals_is_no_count_of_zero(tmp_path: Path) -> None:
    (tmp_path / "counts.1").write_text("version: 1\nevents: Ir\nfn=f\n1 5\ntotals: 42\n")
    (tmp_path / "counts.2").write_text("version: 1\n")
    assert total_of(tmp_path / "counts.1") == 42
    with pytest.raises(CannotCount, match=r"counts\.2"):
        total_of(tmp_path / "counts.2")


def test_the_committed_baselines_have_reasons() -> None:
    baselines = json.loads(Path(instructions.__file__).with_suffix(".json").read_text())
    assert baselines
    for baseline in baselines.values():
        assert baseline["reasons"]
        assert all(count > 0 for count in baseline["instructions"].values())
