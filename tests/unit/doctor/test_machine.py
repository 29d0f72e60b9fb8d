"""`pybroker doctor` on machines: advice about one has a kind of finding, and each metric that is read is told."""

from __future__ import annotations

import ast
from pathlib import Path

from patients import Examine

from pybroker.doctor import machine, running
from pybroker.profiles import check
from pybroker.server.observe.catalogue import METRICS
from pybroker.storage.rings.tail_rings import RING_BYTES


def test_the_metrics_that_are_read_are_told() -> None:
    assert running._COUNTED.keys() <= {each.name for each in METRICS}


def test_every_subject_of_the_profile_checks_has_a_kind() -> None:
    """By their first argument, as far as it is a text: `Finding("swap", …)`, `subject = "swap"`."""
    subjects = {
        text for path in Path(check.__file__).parent.glob("*.py") for text in _subjects(ast.parse(path.read_text()))
    }
    assert {"swap", "io_uring", "control group: memory"} <= subjects
    known = (*machine._KINDS, machine._OPEN_FILES)
    # The last two are never advice: a disk that cannot be seen, and a cache that is what it is.
    left = {each for each in subjects if not each.startswith((*known, "disk of", "write cache"))}
    assert not left


def test_a_budget_without_room_for_one_ring(examined: Examine, tmp_path: Path) -> None:
    settings = (f"log.dirs={tmp_path / 'data'}", "pybroker.append.engine=direct")
    assert "tail-ring-budget" not in examined(*settings, f"pybroker.tail.ring.budget.bytes={RING_BYTES}")
    found = examined(*settings, f"pybroker.tail.ring.budget.bytes={RING_BYTES - 1}")
    assert found["tail-ring-budget"].severity.is_fault


def _subjects(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
            found.add(_text(node.args[0]))
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            else:
                pairs = [(target, value)]
            found |= {_text(each) for name, each in pairs if isinstance(name, ast.Name) and name.id == "subject"}
    return found - {""}


def _text(node: ast.expr) -> str:
    """What a text, or one with values in it, begins with."""
    if isinstance(node, ast.JoinedStr):
        node = node.values[0]
    return str(node.value) if isinstance(node, ast.Constant) else ""
