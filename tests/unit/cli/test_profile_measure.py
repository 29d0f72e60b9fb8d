"""`pybroker profile measure|tune`: what they print and save, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main
from pybroker.profiles.document import read_document
from pybroker.profiles.measurement.result import from_json

RECORDED = Path(__file__).parents[1] / "profiles/measurements/virtual-machine.json"


def profile(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, ["profile", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_measure_prints_tables_and_saves(tmp_path: Path) -> None:
    log_dir = tmp_path / "not/yet/there"
    saved = tmp_path / "measured.json"
    result = profile("measure", "--override", f"log.dirs={log_dir}", "--seconds", "0.1", "--output", saved)
    assert result.exit_code == 0, result.output
    measurement = from_json(saved.read_text())
    assert measurement.directory == str(tmp_path), "where the log dir would be made"
    assert list(tmp_path.iterdir()) == [saved]
    for line in ("write.durable.4KiB", "crc32c.portable.64KiB", "round_trip.spin_50us", f"saved as {saved}"):
        assert line in result.output
    assert f"flush: {measurement.flush.name}: {measurement.flush.why}" in result.output


def test_measure_prints_json_alone(tmp_path: Path) -> None:
    saved = tmp_path / "measured.json"
    arguments = [
        "profile",
        "measure",
        "--directory",
        str(tmp_path),
        "--seconds",
        "0.1",
        "--json",
        "--output",
        str(saved),
    ]
    done = subprocess.run([sys.executable, "-m", "pybroker", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == saved.read_text()
    assert "saved as" in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_ctrl_c_and_kill_leave_nothing_behind(tmp_path: Path, number: signal.Signals, status: int) -> None:
    arguments = ["profile", "measure", "--directory", tmp_path, "--seconds", "600", "--output", tmp_path / "saved.json"]
    with subprocess.Popen([sys.executable, "-m", "pybroker", *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not any(_is_nameless(link, tmp_path) for link in _open_files(process.pid)):
            assert process.poll() is None
        process.send_signal(number)
        try:
            errors = process.communicate(timeout=120)[1]
        finally:
            process.kill()
    assert process.returncode == status
    assert ("nothing is left behind" in errors) == (number == signal.SIGINT)
    assert list(tmp_path.iterdir()) == []


def _is_nameless(link: str, directory: Path) -> bool:
    return link.startswith(f"{directory}/") and link.endswith(" (deleted)")


def _open_files(pid: int) -> list[str]:
    links = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(entry.path))
        except FileNotFoundError:  # closed meanwhile
            continue
    return links


def test_what_cannot_be_measured_or_saved_is_told(tmp_path: Path) -> None:
    result = profile("measure", "--directory", tmp_path, "--seconds", "0.1", "--output", tmp_path / "no/dir/x.json")
    assert result.exit_code == 1
    assert str(tmp_path / "no/dir") in result.output
    assert profile("measure", "--override", "log.dirs=", "--seconds", "0.1").exit_code == 2


def test_tune_writes_a_profile_with_its_reasons(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    result = profile("tune", "--measurement", RECORDED, "--output", path)
    assert result.exit_code == 0, result.output
    document = read_document(path)
    assert document.name == "tuned"
    assert document.settings.keys() == document.why.keys() >= {"append_engine", "reactors", "spin_us"}
    assert document.match["hypervisor"] == "kvm"
    assert f"# Made by `pybroker profile tune` from {RECORDED}," in path.read_text()
    for line in (
        f"pybroker.profile={path}",
        f"sudo install -D -m 644 {path} /etc/pybroker/profile.toml   (undo: sudo rm /etc/pybroker/profile.toml)",
        "the machine was busy",
        *document.why.values(),
    ):
        assert line in result.output


def test_tune_without_a_measurement(tmp_path: Path) -> None:
    no_json = tmp_path / "no.json"
    no_json.write_text(json.dumps({"schema": 0}))
    output = ("--output", tmp_path / "profile.toml")
    result = profile("tune", "--measurement", tmp_path / "missing.json", *output)
    assert (result.exit_code, "No such file" in result.output) == (1, True)
    result = profile("tune", "--measurement", no_json, *output)
    assert (result.exit_code, "its schema is 0, this version reads 1; measure again" in result.output) == (1, True)
    assert not (tmp_path / "profile.toml").exists()
