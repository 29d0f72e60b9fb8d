"""docs/glossary.md explains words that the code has, and points at code that is there."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def _rows() -> list[tuple[str, list[str]]]:
    """Each word with the names in its code column."""
    found = _ROW.findall((ROOT / "docs" / "glossary.md").read_text())
    return [(word, re.findall(r"`([^`]+)`", code)) for word, code in found if word != "word"]


def _sources() -> str:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "csrc/*.c", "csrc/*.h", "pybroker/*.py"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    return "\n".join((ROOT / name).read_text() for name in listed if name and "/tests/" not in name)


@pytest.fixture(scope="module")
def sources() -> str:
    return _sources()


def test_every_name_is_in_the_code(sources: str) -> None:
    rows = _rows()
    assert len(rows) > 25
    for word, names in rows:
        assert names, word
        for name in names:
            assert re.search(rf"\b{re.escape(name)}", sources), f"{word}: {name}"


def test_every_word_is_in_the_code(sources: str) -> None:
    lower = sources.lower()
    for words, _ in _rows():
        for word in words.split(", "):
            parts = word.lower().split()
            assert all(part in lower for part in parts), word
