"""How the installed service is: its files, and what systemd says of it."""

from __future__ import annotations

import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pybroker import __version__
from pybroker.service.deployment import INSTALLED_PATHS, UNIT, written_by
from pybroker.service.installation import below, is_booted

_ASKED = (
    "ActiveState",
    "SubState",
    "Result",
    "StatusText",
    "UnitFileState",
    "MainPID",
    "NRestarts",
    "ActiveEnterTimestamp",
    "NeedDaemonReload",
)


@dataclass(frozen=True, slots=True)
class FileState:
    """An installed file; `note` is empty when it is as this version wrote it."""

    path: str
    version: str
    note: str


@dataclass(frozen=True, slots=True)
class ServiceState:
    """`manager`: what systemd knows, by its own names; empty where it does not run the machine, as of an image."""

    files: tuple[FileState, ...]
    manager: dict[str, str]

    @property
    def is_installed(self) -> bool:
        """Whether the unit is there."""
        return any(Path(each.path).name == UNIT for each in self.files)

    @property
    def is_active(self) -> bool:
        """Whether clients are served."""
        return self.manager.get("ActiveState") == "active"

    def as_dict(self) -> dict[str, Any]:
        """The same as objects of JSON."""
        return {"installed": self.is_installed, "active": self.is_active, **asdict(self)}


def read_state(root: Path) -> ServiceState:
    """OSError when a file cannot be read."""
    files = tuple(_file_state(path) for path in (below(root, each) for each in INSTALLED_PATHS) if path.exists())
    return ServiceState(files, _ask_manager() if root == Path("/") and is_booted() else {})


def _file_state(path: Path) -> FileState:
    written = written_by(path.read_text(encoding="utf-8"))
    if written is None:
        return FileState(str(path), "", "written by somebody else")
    version, is_unchanged = written
    if not is_unchanged:
        return FileState(str(path), version, "changed by hand: settings of your own are better in a drop-in beside it")
    return FileState(
        str(path), version, "" if version == __version__ else f"of {version}; install again for {__version__}"
    )


def _ask_manager() -> dict[str, str]:
    command = ["systemctl", "show", UNIT, f"--property={','.join(_ASKED)}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
