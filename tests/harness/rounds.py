"""`Rounds`: a long test in rounds that are written down one by one, so that it can be played in several sittings.

Each round that ends is a line of `build/rounds/<module of the test>.jsonl`, written at once, and one on the terminal.
With `PYBROKER_SITTING_SECONDS` in the environment a test begins no round that would not end so many seconds after
pytest began, and goes on with those that are not in the file for the same commit; without it, all are played.
`python -m tests.harness.rounds` prints what the files have, by test. The test's thread owns the object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = ROOT / "build" / "rounds"
PASSED, FAILED = "passed", "failed"
_SEEDS_PER_RUN = 1_000_000
_BEGUN = time.monotonic()
#: What a line is about, whoever played it and when.
_IDENTITY = ("test", "parameters", "commit")


def sitting_end() -> float | None:
    """When a sitting of this process ends, by the monotonic clock; None: it lasts as long as there are rounds."""
    text = os.environ.get("PYBROKER_SITTING_SECONDS")
    return None if text is None else _BEGUN + float(text)


def soak_seconds() -> float:
    """How long a test of tests/soak goes on that could for ever."""
    return float(os.environ.get("PYBROKER_SOAK_MINUTES", "60")) * 60


def commit_of(repository: Path) -> str:
    """The commit, with a digest of what was changed since in files that git knows."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", str(repository), *words], check=True, capture_output=True).stdout

    changes = git("diff", "HEAD")
    return git("rev-parse", "HEAD").decode().strip()[:12] + (
        f"+{hashlib.sha256(changes).hexdigest()[:8]}" if changes else ""
    )


class Round:
    """One round, while it is played: a context manager, whose end writes it down. `number` counts from 0 (below it: no
    round), `seed` is the round's own, and `facts` go into its line."""

    def __init__(self, number: int, seed: int, write: Callable[[Round, float, str], None]) -> None:
        self.number = number
        self.seed = seed
        self.facts: dict[str, Any] = {}
        self._write = write

    def __enter__(self) -> Round:
        self._begun = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An interrupt says nothing about the round.
        if error is None or isinstance(error, Exception | pytest.fail.Exception):
            result = PASSED if error is None else f"{FAILED}: {type(error).__name__}: {error}"[:2000]
            self._write(self, time.monotonic() - self._begun, result)


class Rounds:
    """The rounds of one test with one set of parameters."""

    def __init__(self, path: Path, test: str, parameters: str, commit: str, say: Callable[[str], None]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._path = path
        self._identity = {"test": test, "parameters": parameters, "commit": commit}
        self._say = say
        self._count: int | None = None
        self._advice = ""

    def left(self, count: int, seed: int, until: float | None = None) -> Iterator[Round]:
        """Those of `count` rounds that are to be played; each is to be entered. `until` is the end of the sitting, by
        the monotonic clock, instead of the one that the environment gives."""
        end = sitting_end() if until is None else until
        self._count = count
        if end is not None:
            self._go_on()
        done = {row["round"] for row in self.rows}
        played = 0
        for number in range(count):
            if number in done:
                continue
            if end is not None and time.monotonic() + self._longest_seconds() > end:
                if played == 0:
                    self._advice = (
                        f"; a round takes up to {self._longest_seconds():.0f} s, and the sitting was too short"
                    )
                return
            played += 1
            yield Round(number, seed * _SEEDS_PER_RUN + number, self._write)

    def without_end(self, until: float) -> Iterator[Round]:
        """Rounds with seeds drawn for them, for as long as there is time."""
        number = 0
        while time.monotonic() < until:
            yield Round(number, random.SystemRandom().randrange(1, 1 << 31), self._write)
            number += 1

    def closing(self) -> Round:
        """What a sitting does after its last round: no round, but written down all the same, for it can fail."""
        return Round(-1, 0, self._write)

    def require_all(self) -> list[dict[str, Any]]:
        """The lines of all rounds. Fails when one has failed, in whichever sitting; skips when some are left."""
        failed = [row for row in self.rows if row["result"] != PASSED]
        if failed:
            raise AssertionError(
                "\n".join(f"round {row['round']}, seed {row['seed']}: {row['result']}" for row in failed)
            )
        played = [row for row in self.rows if row["round"] is not None]
        if self._count is not None and len(played) < self._count:
            pytest.skip(f"{len(played)} of {self._count} rounds have been played: run it again{self._advice}")
        return played

    def total(self, fact: str) -> int:
        """Of a number that rounds have among their facts."""
        return sum(row["facts"].get(fact, 0) for row in self.rows)

    def _go_on(self) -> None:
        found = [row for row in read(self._path) if {name: row[name] for name in _IDENTITY} == self._identity]
        # A run without sittings begins anew, so that a round can be there twice: one that failed counts.
        by_round: dict[int | None, dict[str, Any]] = {}
        for row in found:
            if row["round"] is not None and (row["result"] != PASSED or row["round"] not in by_round):
                by_round[row["round"]] = row
        closings = [row for row in found if row["round"] is None and row["result"] != PASSED]
        self.rows = [*by_round.values(), *closings]

    def _longest_seconds(self) -> float:
        return max((float(row["seconds"]) for row in self.rows), default=0.0)

    def _write(self, played: Round, seconds: float, result: str) -> None:
        row = {
            **self._identity,
            "round": None if played.number < 0 else played.number,
            "seed": played.seed,
            "seconds": round(seconds, 2),
            "result": result,
            "facts": played.facts,
        }
        self.rows.append(row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a") as file:
            file.write(json.dumps(row) + "\n")
        of = "" if self._count is None else f" of {self._count}"
        which = "closing" if played.number < 0 else f"round {played.number + 1}{of}"
        facts = "".join(f", {name} {value}" for name, value in played.facts.items())
        self._say(f"{which}, seed {played.seed}: {result}, {seconds:.1f} s{facts}")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Rounds:
    """The rounds of the test, which go to the terminal whatever pytest captures."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    name = request.node.originalname
    parameters = request.node.name.removeprefix(name).strip("[]")
    title = f"{name}[{parameters}]" if parameters else name

    def say(text: str) -> None:
        if capture is None:
            print(f"{title}: {text}", flush=True)
            return
        with capture.global_and_fixture_disabled():
            print(f"\n{title}: {text}", end="", flush=True)

    return Rounds(DIRECTORY / f"{request.path.stem}.jsonl", name, parameters, commit_of(ROOT), say)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none where there is no file. A last one that was cut off does not count."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def totals(rows: Sequence[dict[str, Any]]) -> list[str]:
    """For a person: by test, parameters and commit, in the order in which they were first played."""
    grouped: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(tuple(row[name] for name in _IDENTITY), []).append(row)
    lines = []
    for (test, parameters, commit), found in grouped.items():
        passed = {(row["round"], row["seed"]) for row in found if row["result"] == PASSED and row["round"] is not None}
        failed = [row for row in found if row["result"] != PASSED]
        seconds = sum(row["seconds"] for row in found)
        title = f"{test}[{parameters}]" if parameters else test
        lines.append(f"{title} at {commit}: {len(passed)} rounds passed, {len(failed)} failed, {seconds:.0f} s")
        lines += [f"  seed {row['seed']}: {row['result'].splitlines()[0]}" for row in failed]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the totals. The status is 1 when a round has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.rounds", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="default: all in build/rounds")
    rows = [
        row for path in parser.parse_args(arguments).files or sorted(DIRECTORY.glob("*.jsonl")) for row in read(path)
    ]
    print("\n".join(totals(rows)) or "no round has been played")
    return int(any(row["result"] != PASSED for row in rows))


if __name__ == "__main__":
    sys.exit(main())
