"""The wheel holds the broker and what docs/testing.md promises, and none of this project's own tests and benchmarks.

`tests/installed` looks into a wheel; what is here needs no build.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parents[2]
TESTING = ROOT / "pybroker" / "testing"
#: Where somebody's tests get in: `Broker`, the pytest plugin, and the process that forks brokers, started by its name.
ENTRIES = ("pybroker.testing", "pybroker.testing.pytest_plugin", "pybroker.testing.embedded.fork_server")


def imported(path: Path) -> set[str]:
    """Every module that a file imports anywhere in it; of `from package import name` both possible modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def module_files() -> dict[str, Path]:
    """The modules of `pybroker.testing`."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in TESTING.rglob("*.py")
    }


def reachable(files: dict[str, Path]) -> set[str]:
    """The modules of `files` that `ENTRIES` import, and the packages that those lie in."""
    found: set[str] = set()
    waiting = list(ENTRIES)
    while waiting:
        name = waiting.pop()
        if name in files and name not in found:
            found.add(name)
            waiting += [*imported(files[name]), name.rpartition(".")[0]]
    return found


def test_the_testing_package_holds_only_what_its_users_need() -> None:
    files = module_files()
    assert set(ENTRIES) <= set(files)
    assert set(files) - reachable(files) == set(), "what our own tests share belongs to tests/harness"


def test_a_module_without_a_user_is_noticed(tmp_path: Path) -> None:
    lonely = tmp_path / "lonely.py"
    lonely.write_text("import pybroker.testing\n")
    files = {**module_files(), "pybroker.testing.lonely": lonely}
    assert set(files) - reachable(files) == {"pybroker.testing.lonely"}


def test_the_wheel_has_no_package_of_tests_or_benchmarks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    packages = find_packages(str(ROOT), **settings)
    assert {each.partition(".")[0] for each in packages} == {"pybroker"}
    assert {each for each in packages if each.startswith("pybroker.testing")} == {
        "pybroker.testing",
        "pybroker.testing.embedded",
    }


@pytest.mark.parametrize("outside", ["tests", "bench"])
def test_nothing_in_the_package_imports(outside: str) -> None:
    paths = sorted((ROOT / "pybroker").rglob("*.py"))
    assert len(paths) > 300
    importers = [path for path in paths if any(each.partition(".")[0] == outside for each in imported(path))]
    assert importers == []
