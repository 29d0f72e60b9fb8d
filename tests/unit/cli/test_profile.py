"""`pybroker profile detect|check|explain`: what they print, as words and as JSON, and their exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main

sys.path.insert(0, str(Path(__file__).parents[1] / "profiles"))

from trees import unpack


def profile(*arguments: str, machine: str, tmp_path: Path, log_dirs: str = "/data/kafka") -> Result:
    root = tmp_path / machine
    if not root.exists():
        unpack(machine, root)
    common = ("--root", str(root), "--override", f"log.dirs={log_dirs}")
    result = CliRunner().invoke(main, ["profile", *arguments, *common])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def as_json(*arguments: str, machine: str, tmp_path: Path, status: int = 0) -> Any:
    result = profile(*arguments, "--json", machine=machine, tmp_path=tmp_path)
    assert result.exit_code == status, result.output
    return json.loads(result.output)


def test_detect_says_what_and_why(tmp_path: Path) -> None:
    result = profile("detect", machine="virtio", tmp_path=tmp_path)
    assert result.exit_code == 0
    output = result.output
    assert "vda: 256 GiB, virtio, mq-deadline, write back cache, blocks 512/4096" in output
    assert "a hypervisor (kvm)" in output
    assert "says nothing of a virtual disk's medium: `pybroker profile measure`" in output
    assert "profile virtual-machine: the rules of virtual-machine hold" in output
    assert "memory up to 3 GiB, 1.5 CPUs' time, bounds on 2 disks" in output
    assert "transport = sata or sas or scsi" in output
    lines = {" ".join(line.split()[:4]) for line in output.splitlines()}
    assert {"virtual-machine holds virtual =", "nvme does not transport"} <= lines


def test_detect_advises_to_tune_what_nobody_has_measured(tmp_path: Path) -> None:
    output = profile("detect", machine="nvme", tmp_path=tmp_path).output
    assert "profile generic: the rules of nvme hold, and nobody has measured such a machine yet" in output
    assert "run `pybroker profile tune`" in output
    assert "hardware of its own: Dell Inc. OptiPlex 7000" in output


def test_detect_says_that_a_measurement_won(tmp_path: Path) -> None:
    machine = as_json("detect", machine="virtio", tmp_path=tmp_path)["machine"]
    saved = tmp_path / "virtio/var/lib/pybroker/measurement.json"
    saved.parent.mkdir(parents=True)
    saved.write_text(json.dumps({"machine": machine, "medium": {"name": "flash", "why": "a cold read took 90 µs"}}))
    output = profile("detect", machine="virtio", tmp_path=tmp_path).output
    assert f"flash, as measured: a cold read took 90 µs ({saved}). That outranks: /sys calls vda rotating" in output


def test_detect_as_json(tmp_path: Path) -> None:
    found = as_json("detect", machine="hdd", tmp_path=tmp_path)
    assert (found["profile"], found["recognised"], found["facts"]["medium"]) == ("generic", "hdd", "rotating")
    assert found["machine"]["storage"][0]["disks"][0]["name"] == "sda"
    rules = {each["profile"]: each["matches"] for each in found["candidates"]}
    assert rules == {"hdd": True, "nvme": False, "sata-ssd": False, "virtual-machine": False}
    assert found["settings"]["spin_us"]["source"] == "generic"


def test_check_prints_what_to_do_and_its_undo(tmp_path: Path) -> None:
    result = profile("check", machine="hdd", tmp_path=tmp_path)
    assert result.exit_code == 1
    for line in (
        "advice: swap: 8 GiB, vm.swappiness = 60 → none, or vm.swappiness up to 10 (as root)",
        "  fix:  sudo sysctl -w vm.swappiness=1",
        "  undo:  sudo sysctl -w vm.swappiness=60",
        "  keep:  the line `vm.swappiness = 1` in /etc/sysctl.d/90-pybroker.conf",
    ):
        assert line in result.output.splitlines()
    assert "4 to look after; --why shows all" in result.output


def test_check_gives_the_reasons_to_those_who_ask(tmp_path: Path) -> None:
    brief = profile("check", machine="hdd", tmp_path=tmp_path)
    whole = CliRunner().invoke(
        main, ["profile", "check", "--why", "--root", str(tmp_path / "hdd"), "--override", "log.dirs=/data"]
    )
    assert "\nok " not in brief.output and "\nok " in whole.output
    assert whole.output.startswith("warning: mount of /data")


def test_check_as_json(tmp_path: Path) -> None:
    found = {each["subject"]: each for each in as_json("check", machine="hdd", tmp_path=tmp_path, status=1)["findings"]}
    assert (found["mount of /data"]["status"], found["swap"]["status"]) == ("warning", "advice")
    assert found["swap"]["remedy"]["undo"] == "sudo sysctl -w vm.swappiness=60"
    assert found["kernel"]["remedy"] is None


def test_check_has_nothing_to_say_of_a_good_machine(tmp_path: Path) -> None:
    unpack("nvme", tmp_path / "nvme")
    (tmp_path / "nvme/sys/devices/system/cpu/cpufreq/policy4/scaling_governor").write_text("performance")
    result = profile("check", machine="nvme", tmp_path=tmp_path)
    assert (result.exit_code, "nothing to be done" in result.output) == (0, True)


@pytest.mark.parametrize("key", ["reactors", "pybroker.reactors"])
def test_explain_takes_either_name_of_a_key(key: str, tmp_path: Path) -> None:
    output = " ".join(profile("explain", key, machine="virtio", tmp_path=tmp_path).output.split())
    assert "here half, which is 1 here from virtual-machine:" in output
    assert "virtual-machine.toml" in output
    assert "wins over it pybroker.reactors" in output
    assert "profiles generic half, virtual-machine half" in output


def test_explain_names_the_setting_that_won(tmp_path: Path) -> None:
    (found,) = as_json("explain", "spin_us", "--override", "pybroker.spin.us=7", machine="virtio", tmp_path=tmp_path)
    assert (found["value"], found["source"], found["place"]) == (7, "explicit", "pybroker.spin.us (--override)")
    assert found["profiles"] == {"generic": 50, "virtual-machine": 50}


def test_explain_all_and_an_unknown_key(tmp_path: Path) -> None:
    found = as_json("explain", "all", machine="virtio", tmp_path=tmp_path)
    assert [each["key"] for each in found][:3] == ["reactors", "reactors_max", "spin_us"]
    result = profile("explain", "colour", machine="virtio", tmp_path=tmp_path)
    assert result.exit_code == 2
    assert "'colour' is nothing a profile sets; accepted: all, reactors" in result.output


@pytest.mark.parametrize("command", [["detect"], ["check"], ["explain", "all"]])
def test_a_profile_that_does_not_exist(command: list[str], tmp_path: Path) -> None:
    result = profile(*command, "--override", "pybroker.profile=toaster", machine="virtio", tmp_path=tmp_path)
    assert (result.exit_code, "toaster" in result.output) == (2, True)


def test_this_machine(tmp_path: Path) -> None:
    """Whatever it is: something is said of it, and nothing is written."""
    common = ["--override", f"log.dirs={tmp_path}/data", "--json"]
    detected = CliRunner().invoke(main, ["profile", "detect", *common])
    assert detected.exit_code == 0
    assert json.loads(detected.output)["machine"]["storage"][0]["path"] == f"{tmp_path}/data"
    checked = CliRunner().invoke(main, ["profile", "check", *common])
    assert checked.exit_code in (0, 1)
    assert {each["subject"] for each in json.loads(checked.output)["findings"]} >= {"kernel", "io_uring", "open files"}
    assert list(tmp_path.iterdir()) == []
