"""docs/doctor.md has every kind of finding, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pybroker.config.notices import NoticeKind
from pybroker.doctor import settings

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [*sorted((ROOT / "pybroker" / "doctor").glob("*.py")), ROOT / "pybroker" / "cli" / "commands" / "doctor.py"]
MANUAL = ROOT / "docs" / "doctor.md"
KIND = re.compile(r"[a-z0-9_]+(-[a-z0-9_]+)*")


def literals() -> set[str]:
    """Every string in the code."""
    trees = [ast.parse(path.read_text()) for path in SOURCES]
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in nodes if isinstance(node.value, str)}


def made() -> Iterator[str]:
    """Kinds that stand in the call that makes a finding or a cause of some."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Finding", "_Cause"):
                kind = node.args[1]
                if isinstance(kind, ast.Constant):
                    yield kind.value


def test_the_manual_has_every_kind() -> None:
    rows = [line for line in MANUAL.read_text().splitlines() if line.startswith("| `")]
    documented = [line.split("`")[1] for line in rows]
    assert len(documented) == len(set(documented))
    kinds = set(made())
    assert len(kinds) > 20
    assert kinds <= set(documented)
    assert set(documented) <= literals(), "kinds that the doctor does not know"


def test_every_warning_about_settings_is_a_finding() -> None:
    kinds = {kind.value for kind in NoticeKind if kind.is_warning}
    assert kinds == set(settings._WARNINGS)
