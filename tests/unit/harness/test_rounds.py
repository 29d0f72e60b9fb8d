"""Long tests in sittings: what is written of each round, and what the next sitting goes on with."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.harness.rounds import Rounds, main, read, totals

HOUR = 3600.0


class Sitting:
    """One sitting of a test of four rounds."""

    def __init__(self, path: Path, commit: str = "c1", parameters: str = "p") -> None:
        self.said: list[str] = []
        self.rounds = Rounds(path, "test_it", parameters, commit, self.said.append)

    def play(self, at_most: int = 9, until: float | None = None, broken: int = -1) -> list[tuple[int, int]]:
        played: list[tuple[int, int]] = []
        for each in self.rounds.left(4, seed=7, until=until):
            if len(played) == at_most:
                break
            with each:
                each.facts["records"] = 10
                assert each.number != broken
                played.append((each.number, each.seed))
        return played


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYBROKER_SITTING_SECONDS", raising=False)
    return tmp_path / "rounds" / "test_file.jsonl"


def test_a_sitting_goes_on_where_the_last_one_stopped(path: Path) -> None:
    later = time.monotonic() + HOUR
    first, second = Sitting(path), Sitting(path)
    assert first.play(at_most=3, until=later) == [(0, 7_000_000), (1, 7_000_001), (2, 7_000_002)]
    with pytest.raises(pytest.skip.Exception, match="3 of 4 rounds"):
        first.rounds.require_all()
    assert second.play(until=later) == [(3, 7_000_003)]
    assert [row["round"] for row in second.rounds.require_all()] == [0, 1, 2, 3]
    assert second.rounds.total("records") == 40
    assert second.said[0].startswith("round 4 of 4, seed 7000003: passed")


def test_other_commits_and_parameters_have_rounds_of_their_own(path: Path) -> None:
    later = time.monotonic() + HOUR
    Sitting(path).play(until=later)
    assert len(Sitting(path, commit="c2").play(until=later)) == 4
    assert len(Sitting(path, parameters="q").play(until=later)) == 4
    assert Sitting(path).play(until=later) == []


def test_without_sittings_all_is_played_again(path: Path) -> None:
    assert len(Sitting(path).play()) == len(Sitting(path).play()) == 4


def test_the_environment_says_how_long_a_sitting_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBROKER_SITTING_SECONDS", "-1000000")
    assert Sitting(path).play() == []


def test_no_round_begins_that_would_not_end(path: Path) -> None:
    path.parent.mkdir()
    row = {"test": "test_it", "parameters": "p", "commit": "c1", "round": 0, "seed": 1, "seconds": 50.0}
    path.write_text(json.dumps(row | {"result": "passed", "facts": {}}) + "\n")
    short = Sitting(path)
    assert short.play(until=time.monotonic() + 40) == []
    with pytest.raises(pytest.skip.Exception, match="takes up to 50 s"):
        short.rounds.require_all()
    assert len(Sitting(path).play(until=time.monotonic() + HOUR)) == 3


def test_a_failure_of_another_sitting_is_not_forgotten(path: Path) -> None:
    later = time.monotonic() + HOUR
    with pytest.raises(AssertionError):
        Sitting(path).play(until=later, broken=1)
    second = Sitting(path)
    assert [number for number, _ in second.play(until=later)] == [2, 3]
    with pytest.raises(AssertionError, match="round 1, seed 7000001"):
        second.rounds.require_all()


def test_what_closes_a_sitting_may_fail(path: Path) -> None:
    later = time.monotonic() + HOUR
    first, second = Sitting(path), Sitting(path)
    first.play(until=later)
    with pytest.raises(OSError), first.rounds.closing():
        raise OSError("the last look")
    assert second.play(until=later) == []
    with pytest.raises(AssertionError, match="the last look"):
        second.rounds.require_all()


def test_an_interrupt_is_no_result(path: Path) -> None:
    sitting = Sitting(path)
    with pytest.raises(KeyboardInterrupt):
        for each in sitting.rounds.left(4, seed=7):
            with each:
                raise KeyboardInterrupt
    assert read(path) == []


def test_a_line_that_was_cut_off_does_not_count(path: Path) -> None:
    later = time.monotonic() + HOUR
    Sitting(path).play(until=later)
    path.write_text(path.read_text()[:-5])
    assert Sitting(path).play(until=later) == [(3, 7_000_003)]


def test_totals(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Sitting(path).play(at_most=2)
    with pytest.raises(AssertionError):
        Sitting(path, parameters="").play(broken=1)
    lines = totals(read(path))
    assert lines[0] == "test_it[p] at c1: 2 rounds passed, 0 failed, 0 s"
    assert lines[1] == "test_it at c1: 1 rounds passed, 1 failed, 0 s"
    assert lines[2].startswith("  seed 7000001: failed: AssertionError")
    assert main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == lines
