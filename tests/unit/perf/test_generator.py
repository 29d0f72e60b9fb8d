"""Where the load generator is found, and what is said when it is nowhere."""

import os
import stat
from pathlib import Path

import pytest

from pybroker.perf import generator
from pybroker.perf.generator import GeneratorMissing, find_generator


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package without the program, in no checkout."""
    monkeypatch.delenv(generator.VARIABLE, raising=False)
    monkeypatch.setattr(generator, "_INSTALLED", tmp_path / "package" / "pbload")
    monkeypatch.setattr(generator, "_CHECKOUT", tmp_path / "checkout")
    return tmp_path


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_none(nowhere: Path) -> None:
    with pytest.raises(GeneratorMissing, match="PYBROKER_PBLOAD"):
        find_generator()


def test_the_packages_own(nowhere: Path) -> None:
    own = executable(nowhere / "package" / "pbload")
    assert find_generator() == own


def test_another_one_goes_first(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(nowhere / "package" / "pbload")
    monkeypatch.setenv(generator.VARIABLE, str(executable(nowhere / "mine")))
    assert find_generator() == nowhere / "mine"
    monkeypatch.setenv(generator.VARIABLE, str(nowhere / "missing"))
    with pytest.raises(GeneratorMissing, match="no program"):
        find_generator()


def test_a_checkout_builds_it(nowhere: Path) -> None:
    load = nowhere / "checkout" / "bench" / "load"
    load.mkdir(parents=True)
    (load / "Makefile").write_text("all:\n\tmkdir -p ../../build/load && touch ../../build/load/pbload\n")
    assert find_generator() == nowhere / "checkout" / "build" / "load" / "pbload"
    assert os.path.exists(find_generator())
    (load / "Makefile").write_text("all:\n\techo no compiler >&2; exit 1\n")
    with pytest.raises(GeneratorMissing, match=r"(?s)scripts/bootstrap.*no compiler"):
        find_generator()
