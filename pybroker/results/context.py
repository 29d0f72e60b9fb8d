"""The facts that a result file lacks: the machine it was measured on, the commit, and pybroker's settings.

Read once from /proc, /sys and git by `detect`; nothing here needs root. Unknown facts stay empty.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pybroker.profiles.facts import read_machine
from pybroker.results.row import time_text
from pybroker.results.source import SETTINGS


@dataclass(frozen=True, slots=True)
class Context:
    """Defaults for the fields of `Row` that bear the same names; what a result file says goes before them."""

    machine: str = ""
    commit: str = ""
    commit_time: str = ""
    cpu: str = ""
    cores: int = 0
    ram_bytes: int = 0
    disk: str = ""
    nic: str = ""
    kernel: str = ""
    file_system: str = ""
    profile: str = ""
    backend: str = ""
    engine: str = ""
    durability: str = ""
    parameters: dict[str, str] = field(default_factory=dict)

    def as_fields(self) -> dict[str, Any]:
        """All but the parameters."""
        fields = asdict(self)
        del fields["parameters"]
        return fields

    def hardware(self) -> dict[str, Any]:
        """The facts of the machine that hold for every run."""
        names = ("machine", "cpu", "cores", "ram_bytes", "disk", "nic", "kernel", "file_system")
        return {name: getattr(self, name) for name in names}

    def another_machine(self, **known: Any) -> Context:
        """For a file that was measured elsewhere: nothing of this machine but what `known` says of that one."""
        bare = Context(commit=self.commit, commit_time=self.commit_time, parameters=self.parameters)
        settings = {name: getattr(self, name) for name in SETTINGS}
        return replace(bare, **settings, **known)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _nics() -> Iterator[str]:
    root = Path("/sys/class/net")
    for each in sorted(root.iterdir()) if root.is_dir() else ():
        device = each / "device"
        if device.exists():
            speed = _read(f"{each}/speed")
            driver = (device / "driver").resolve().name
            yield f"{driver} {speed} Mb/s" if speed.isdigit() else driver


def _git(directory: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _machine_name(*facts: object) -> str:
    """The host's name alone would be the same on every clone of an image; the id and the hardware tell them apart."""
    text = "|".join(str(fact) for fact in (_read("/etc/machine-id"), *facts))
    return f"{platform.node()}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def detect(data_dir: Path, checkout: Path) -> Context:
    """This machine, with the disk that holds `data_dir`, and the commit of `checkout` when that is one."""
    found = read_machine([data_dir.resolve()])
    (storage,) = found.storage
    cpu, cores, ram_bytes = found.cpu.model, found.cpu.online_count, found.memory.total_bytes or 0
    disk = ", ".join(each.model or each.name for each in storage.disks)
    nic = ", ".join(dict.fromkeys(_nics()))
    # A tree with changes is no commit: its figures must not stand in that commit's history.
    commit = _git(checkout, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    seconds = _git(checkout, "log", "-1", "--format=%ct")
    return Context(
        machine=_machine_name(cpu, cores, ram_bytes, disk, nic),
        commit=commit,
        commit_time=time_text(float(seconds)) if seconds else "",
        cpu=cpu,
        cores=cores,
        ram_bytes=ram_bytes,
        disk=disk,
        nic=nic,
        kernel=found.kernel.release,
        file_system=storage.file_system,
    )
