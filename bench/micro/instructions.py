"""Instructions of single hot functions in C, held against a committed baseline: `python -m bench.micro.instructions`.

Counted by callgrind, so it does not matter what else the machine does, and two runs give the same numbers. They depend
on the compiler, and a little on the C library: the baseline has a list for each, and a compiler without one is an
error, not a pass. CRC32C is pinned to one variant (csrc/perf/cases.c), memory functions to those every x86-64 has.

    python -m bench.micro.instructions                       compare
    python -m bench.micro.instructions baseline --reason R   take what is counted now as the baseline, and keep R

Status 0: nothing to complain of. Status 1: a function takes more than 5 % more, or the baseline lists other functions.
Status 2: a wrong command line. Status 3: no baseline for this compiler, or no valgrind.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BASELINE = Path(__file__).with_suffix(".json")
PROGRAM = ROOT / "build" / "native" / "perf" / "perf_cases"
CALLS = 100
#: More instructions than this times the baseline's are too many.
LIMIT = 1.05
#: Fewer than this times the baseline's are worth a new one.
GAIN = 0.95
_SHORTEST_REASON = 10
_EXIT_WORSE, _EXIT_USAGE, _EXIT_CANNOT = 1, 2, 3
# Nothing of the caller's environment: it lies on the stack, and decides what the C library picks.
_ENVIRONMENT = {"LD_BIND_NOW": "1", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX,-AVX512F,-ERMS,-FSRM"}
_COLLECT = ("--toggle-collect=perf_measure", "--dump-after=perf_measure")
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


class CannotCount(RuntimeError):
    """There are no counts; the text says why and what to do."""


@dataclass
class Verdict:
    """The result of a comparison: a line for each function, and which of them fail."""

    lines: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    gained: list[str] = field(default_factory=list)


def compiler(command: str = "gcc") -> str:
    """The environment that the counts depend on: compiler, target and C library, such as "gcc 12.2.0 x86_64-linux-gnu
    glibc 2.36"."""
    version, machine = (
        subprocess.run([command, flag], capture_output=True, text=True, check=True).stdout.strip()
        for flag in ("-dumpfullversion", "-dumpmachine")
    )
    return f"{command} {version} {machine} {' '.join(platform.libc_ver())}"


def count(program: Path = PROGRAM, calls: int = CALLS) -> dict[str, int]:
    """Instructions of one call of each function. Raises CannotCount."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CannotCount("valgrind is not installed: scripts/bootstrap test")
    with tempfile.TemporaryDirectory(prefix="pybroker-instructions-") as directory:
        output = Path(directory, "counts")
        tool = [valgrind, "-q", "--tool=callgrind", *_COLLECT, f"--callgrind-out-file={output}"]
        command = [*tool, str(program), str(calls)]
        done = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotCount(f"{program.name} ended with status {done.returncode}:\n{done.stderr}")
        names = done.stdout.split()
        return {name: total_of(Path(f"{output}.{place}")) // calls for place, name in enumerate(names, start=1)}


def total_of(dump: Path) -> int:
    """The instructions in one of callgrind's files."""
    match = _TOTALS.search(dump.read_text())
    if match is None:
        raise CannotCount(f"{dump.name}: callgrind has written no totals")
    return int(match[1])


def compare(counted: Mapping[str, int], baseline: Mapping[str, int]) -> Verdict:
    """Each function against the baseline."""
    verdict = Verdict()
    for name in sorted(counted.keys() | baseline.keys()):
        now, before = counted.get(name), baseline.get(name)
        if now is None or before is None:
            verdict.failed.append(name)
            what = "is not counted any more" if now is None else f"{now:10,}  has no baseline"
            verdict.lines.append(f"{name:24} {what}")
            continue
        ratio = now / before
        mark = ""
        if ratio > LIMIT:
            verdict.failed.append(name)
            mark = "  MORE"
        elif ratio < GAIN:
            verdict.gained.append(name)
            mark = "  less"
        verdict.lines.append(f"{name:24} {now:10,} {before:10,} {100 * (ratio - 1):+7.2f} %{mark}")
    return verdict


def load(path: Path = BASELINE) -> dict[str, Any]:
    """The baselines by compiler; none when there is no file."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def update(path: Path, key: str, counted: Mapping[str, int], reason: str) -> None:
    """Make `counted` the baseline of this compiler; why is kept, newest last, with what became of each function."""
    baselines = load(path)
    old = baselines.get(key, {"reasons": [], "instructions": {}})
    before = old["instructions"]
    changes = {
        name: f"{100 * (now / before[name] - 1):+.2f} %" if name in before else "new"
        for name, now in sorted(counted.items())
        if now != before.get(name)
    }
    gone = {name: "gone" for name in before if name not in counted}
    entry = {
        "date": datetime.now(UTC).date().isoformat(),
        "reason": reason,
        "changes": changes | gone if before else {},
    }
    baselines[key] = {"reasons": [*old["reasons"], entry], "instructions": dict(sorted(counted.items()))}
    path.write_text(json.dumps(dict(sorted(baselines.items())), indent=2) + "\n")


def _check(key: str) -> int:
    baselines = load()
    if key not in baselines:
        known = "; ".join(baselines) or "none"
        print(
            f"There is no baseline for {key} (there is: {known}), so nothing was compared.\n"
            "At a commit that is known to be good: make instructions-baseline REASON='first count with ...',\n"
            "and commit the file.",
            file=sys.stderr,
        )
        return _EXIT_CANNOT
    verdict = compare(count(), baselines[key]["instructions"])
    print(f"Instructions of one call, {key}\n{'':24} {'now':>10} {'baseline':>10}")
    print("\n".join(verdict.lines))
    if verdict.gained:
        print(f"Fewer than the baseline: {', '.join(verdict.gained)}. A new baseline keeps the gain.")
    if verdict.failed:
        print(
            f"FAILED: {', '.join(verdict.failed)}.\n"
            "If that is meant: make instructions-baseline REASON='why it is worth it'",
            file=sys.stderr,
        )
        return _EXIT_WORSE
    return 0


def _ask() -> str:
    return input("Why do the instructions change? ") if sys.stdin.isatty() else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, or write the baseline."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro.instructions", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("check", "baseline"), default="check")
    parser.add_argument("--reason", default="", help="for baseline: why the counts change")
    options = parser.parse_args(arguments)
    key = compiler(os.environ.get("CC", "gcc"))
    try:
        if options.what == "check":
            return _check(key)
        reason = (options.reason or _ask()).strip()
        if len(reason) < _SHORTEST_REASON:
            print(
                "A baseline needs a reason that people will understand: --reason, or REASON= of make", file=sys.stderr
            )
            return _EXIT_USAGE
        update(BASELINE, key, count(), reason)
    except CannotCount as error:
        print(error, file=sys.stderr)
        return _EXIT_CANNOT
    print(f"{BASELINE.relative_to(ROOT)} has a new baseline for {key}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
