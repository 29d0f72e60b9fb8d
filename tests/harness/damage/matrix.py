"""Plays every kind of file x every harm x both ways to stop, and keeps docs/damaged-files.md.

    python -m tests.harness.damage.matrix [--write] [--only active]

prints each verdict; `--write` replaces the table in the page. Needs root, for the drive whose reads fail.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.harness.crash.power_disk import PowerDisk
from tests.harness.damage import template, verdict
from tests.harness.damage.files import kinds
from tests.harness.damage.harm import FLIPPED, HARMS, applies, harmed
from tests.harness.damage.template import CLEAN, KILLED, TOPIC, Template
from tests.harness.damage.verdict import Verdict, judge

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "damaged-files.md"
_BEGIN, _END = "<!-- made by tests.harness.damage.matrix -->", "<!-- end -->"
_DISK_BYTES = 96 << 20
#: How the page says each verdict.
_SHORT = {
    verdict.REFUSED: "refuses",
    verdict.LOST: "loss named",
    verdict.NAMED: "named",
    verdict.UNNOTICED: "harmless",
    verdict.CHECKED: "log check",
    verdict.REPORTED: "client, log check",
}


@dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    stop: str
    kind: str
    harm: str


@contextmanager
def failing_disk() -> Iterator[PowerDisk]:
    """A small file system whose drive can be told to fail."""
    powerfs = ROOT / "tests" / "crash" / "powerfs"
    subprocess.run(["make", "-C", str(powerfs)], check=True, stdout=subprocess.DEVNULL)
    with PowerDisk(ROOT / "build" / "powerfs" / "powerfs", size_bytes=_DISK_BYTES) as disk:
        yield disk


def _cases(made: Template, only: str) -> Iterator[tuple[Case, Path]]:
    for kind, path in kinds(made.log_dir, TOPIC, made.rings).items():
        for harm in HARMS:
            if only in kind and applies(path, harm):
                yield Case(made.stop, kind, harm), path


def play(only: str = "") -> Iterator[tuple[Case, Verdict]]:
    """All cases whose kind of file contains `only`, each with its verdict."""
    place = Path(tempfile.mkdtemp(prefix="pybroker-damage-"))
    rings = Path(tempfile.mkdtemp(prefix="pybroker-damage-", dir="/dev/shm"))
    try:
        with failing_disk() as disk:
            for name, stop in (("clean", CLEAN), ("killed", KILLED)):
                made = template.make(place / name, rings / name, stop)
                for case, path in list(_cases(made, only)):
                    made.restore()
                    with harmed(path, case.harm, disk):
                        yield case, judge(made, path)
    finally:
        shutil.rmtree(place)
        shutil.rmtree(rings)


def is_fault(case: Case, found: Verdict) -> bool:
    """Whether the broker breaks its promise. A flipped byte among the records of a sealed segment may stay unsaid until
    it is read; a derived file that is missing or useless, but not needed, may stay unsaid for good."""
    if found.word in verdict.FAULTS:
        return True
    is_sealed = case.kind.endswith(".log") and "active" not in case.kind
    return found.word == verdict.REPORTED and not (case.harm == FLIPPED and is_sealed)


def table(found: dict[Case, Verdict]) -> str:
    """The matrix as Markdown: a row for each kind of file, a column for each harm. Both stops share a cell."""
    lines = [f"| file | {' | '.join(HARMS)} |", f"|---|{'---|' * len(HARMS)}"]
    for kind in dict.fromkeys(case.kind for case in sorted(found, key=lambda each: each.kind)):
        cells = []
        for harm in HARMS:
            words = [
                _SHORT.get(found[case].word, found[case].word)
                for case in (Case(CLEAN, kind, harm), Case(KILLED, kind, harm))
                if case in found
            ]
            cells.append(" / ".join(dict.fromkeys(words)))
        lines.append(f"| `{kind}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def page_with(made_table: str, text: str) -> str:
    """The page's text with another table."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{made_table}\n{_END}{after}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--output", action="store_true", help="Show the broker's log of each fault.")
    wanted = parser.parse_args()
    found: dict[Case, Verdict] = {}
    for case, each in play(wanted.only):
        found[case] = each
        print(f"{case.stop} | {case.kind} | {case.harm} | {each.word}", flush=True)
        if wanted.output and is_fault(case, each):
            print(each.output)
    if wanted.write:
        PAGE.write_text(page_with(table(found), PAGE.read_text()))
    sys.exit(1 if any(is_fault(case, each) for case, each in found.items()) else 0)


if __name__ == "__main__":
    main()
