"""`pybroker doctor` as it is called: its exit status, what it prints, and where the extension does not fit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import pybroker
from pybroker.cli.main import main

PACKAGE = Path(pybroker.__file__).parent
TIMEOUT_S = 120


def settings(log_dir: Path, *more: str) -> list[str]:
    values = (f"log.dirs={log_dir}", "listeners=PLAINTEXT://127.0.0.1:0", "pybroker.metrics.listener=127.0.0.1:0")
    return [part for each in (*values, *more) for part in ("--override", each)]


def run_json(
    command: list[str], directory: Path | None = None, **environment: str
) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit status, and the findings by kind."""
    done = subprocess.run(
        [*command, "--json"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=directory,
        env={**os.environ, **environment},
    )
    assert done.stdout, done.stderr
    return done.returncode, {each["kind"]: each for each in json.loads(done.stdout)["findings"]}


def test_a_configuration_that_is_not_accepted(tmp_path: Path) -> None:
    told = "advertised.listeners=PLAINTEXT://0.0.0.0:9092"
    done = CliRunner().invoke(main, ["doctor", *settings(tmp_path / "data", told)])
    assert done.exit_code == 2
    assert "0.0.0.0" in done.stderr


def test_what_a_person_reads(new_dir: Path) -> None:
    done = CliRunner().invoke(main, ["doctor", *settings(new_dir, "node.id=7", "zookeeper.connect=z:2181")])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == f"error foreign-node-id: {new_dir / 'meta.properties'}"
    assert lines[1].startswith("  what: it says node.id=1")
    assert any(line.startswith("  why:  ") for line in lines)
    assert any(line.startswith("  do:   set node.id=1") for line in lines)
    assert any(line.startswith("warning retired-setting: ") for line in lines)


def test_io_uring_that_is_refused(new_dir: Path) -> None:
    filtered = [sys.executable, "-m", "pybroker.testing.seccomp", "io_uring_setup=EPERM", "--"]
    _, found = run_json([*filtered, sys.executable, "-m", "pybroker", "doctor", *settings(new_dir)])
    assert "io-uring-refused" in found


def test_few_open_files(new_dir: Path) -> None:
    limited = ["sh", "-c", 'ulimit -n 1024 && exec "$@"', "sh"]
    status, found = run_json([*limited, sys.executable, "-m", "pybroker", "doctor", *settings(new_dir)])
    assert status == 1
    assert found["open-files"]["severity"] == "warning"
    assert found["open-files"]["what"].startswith("it may have 1,024 open files")


def test_durable_acks_in_memory() -> None:
    log_dir = Path("/dev/shm", f"pybroker-doctor-{os.getpid()}")
    log_dir.mkdir()
    try:
        command = [sys.executable, "-m", "pybroker", "doctor", *settings(log_dir, "pybroker.durability=acks")]
        status, found = run_json(command)
    finally:
        log_dir.rmdir()
    assert status == 1
    assert {"unreal-flush", "log-dir-in-memory"} <= found.keys()


@pytest.mark.parametrize("fault", ["missing", "another version"])
def test_an_extension_that_does_not_fit(tmp_path: Path, fault: str) -> None:
    package = tmp_path / "pybroker"
    package.mkdir()
    for each in PACKAGE.iterdir():
        if each.name == "native":
            without = shutil.ignore_patterns("*.so", "__pycache__") if fault == "missing" else None
            shutil.copytree(each, package / each.name, ignore=without)
        elif each.name != "__pycache__":
            (package / each.name).symlink_to(each)
    if fault == "another version":
        bindings = package / "native" / "bindings.py"
        text = bindings.read_text()
        assert "\nABI_VERSION = " in text
        bindings.write_text(text.replace("\nABI_VERSION = ", "\nABI_VERSION = 100 + "))
    command = [sys.executable, "-m", "pybroker", "doctor", *settings(tmp_path / "data")]
    status, found = run_json(command, tmp_path, PYTHONPATH=str(tmp_path))
    assert status == 1
    assert list(found) == ["extension"]
    assert "make build" in found["extension"]["what"]
