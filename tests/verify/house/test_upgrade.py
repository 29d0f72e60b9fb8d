"""Up to this version and back, on one log dir: an older one writes, this one goes on, the older one goes on again.

The older one is built from git: the last before log dirs said which version had them, or
`PYBROKER_UPGRADE_FROM=REVISION`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pybroker.storage.dirs.format_version import OWN, FormatVersion
from tests.harness import kept_data
from tests.harness.broker import BrokerProcess
from tests.harness.kept_data import OVERRIDES, KeptData

ROOT = Path(__file__).resolve().parents[3]
MARK = "pybroker/storage/dirs/format_version.py"


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, stdout=subprocess.PIPE).stdout


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of the older version with its extension in place."""
    revision = os.environ.get("PYBROKER_UPGRADE_FROM")
    if not revision:
        added = git("log", "--follow", "--diff-filter=A", "--format=%H", "--", MARK).decode().split()
        if not added:
            pytest.skip(f"git does not know when {MARK} was added: fetch the whole history")
        revision = f"{added[-1]}^"
    tree = tmp_path_factory.mktemp("older")
    subprocess.run(["tar", "x", "-C", tree], input=git("archive", revision), check=True)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tree, check=True)
    return tree


def serving(log_dir: Path, engine: str, tree: Path = ROOT) -> BrokerProcess:
    """A broker of that tree, whatever the current directory has."""
    env = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    return BrokerProcess(log_dir, overrides={**OVERRIDES, "pybroker.append.engine": engine}, env=env)


def seen(log_dir: Path, engine: str, tree: Path = ROOT, *, append: str = "") -> KeptData:
    """What that version has in the dir, after it appended to it; stopped in order."""
    with serving(log_dir, engine, tree) as broker:
        if append:
            kept_data.append(broker.bootstrap, append)
        return kept_data.read(broker.bootstrap)


@pytest.mark.parametrize("engine", ["paced", "direct"])
def test_up_and_down_again(older: Path, tmp_path: Path, engine: str) -> None:
    log_dir = tmp_path / "data"
    with serving(log_dir, engine, older) as broker:
        kept_data.write(broker.bootstrap)
        written = kept_data.read(broker.bootstrap)
    assert {index: len(found) for index, found in written.records.items()} == {0: 5, 1: 5}
    assert seen(log_dir, engine) == written
    assert FormatVersion.read(log_dir) == OWN
    upgraded = seen(log_dir, engine, append="up")
    assert {index: len(found) for index, found in upgraded.records.items()} == {0: 10, 1: 10}
    assert seen(log_dir, engine, older) == upgraded
    downgraded = seen(log_dir, engine, older, append="down")
    assert seen(log_dir, engine) == downgraded
    assert {index: len(found) for index, found in downgraded.records.items()} == {0: 15, 1: 15}


def test_up_from_a_killed_one(older: Path, tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    broker = serving(log_dir, "paced", older)
    kept_data.write(broker.bootstrap)
    written = kept_data.read(broker.bootstrap)
    broker.kill()
    assert seen(log_dir, "paced") == written
