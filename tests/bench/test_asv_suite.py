"""The suite of ASV: it can be imported beside any commit's package, and leaves out what a commit does not have."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from bench.asv.suite import loads
from bench.asv.suite.broker import NotStarted

SUITE = Path(loads.__file__).parent


@pytest.mark.parametrize("path", sorted(SUITE.glob("*.py")), ids=lambda path: path.name)
def test_it_imports_the_standard_library_and_itself_alone(path: Path) -> None:
    """Anything of pybroker may be missing in the commit that is measured."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        foreign = [name for name in names if name.partition(".")[0] not in sys.stdlib_module_names]
        assert not foreign, f"{path.name}:{node.lineno} imports {foreign}"


def test_a_setting_that_does_not_start_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(overrides: object) -> None:
        raise NotStarted("unknown engine")

    monkeypatch.setattr(loads, "Broker", refuse)
    figures = loads._measure(("direct", "epoll", "none"), {})
    assert set(figures.values()) == {None}
    with pytest.raises(NotImplementedError):
        loads.Produce().setup(figures, "direct", "epoll", "none", 16384)


def test_figures_are_medians_of_the_rounds_that_there_are() -> None:
    rounds: list[loads.Figures] = [{("a",): {"mb_per_s": value}, ("b",): None} for value in (1.0, 9.0, 2.0)]
    rounds[2]["a",] = None
    rounds.append({("a",): {"mb_per_s": 3.0}, ("b",): None})
    assert loads._medians(rounds) == {("a",): {"mb_per_s": 3.0}, ("b",): None}
