"""The actions of `pybroker service install` and `uninstall`, as steps that are told first and then made.

A step that finds everything as it should be is none. Files lie below a root: `/`, or an image or a test's directory,
where commands of the running system are left out. Failures: `DeploymentError`, `OSError`, and `StepFailed`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pybroker.service.deployment import (
    INSTALLED_PATHS,
    SYSUSERS_PATH,
    TMPFILES_PATH,
    UNIT,
    DeploymentError,
    ServiceFile,
    written_by,
)
from pybroker.storage.files.atomic import write_durably

_BOOTED = Path("/run/systemd/system")  # sd_booted(3)


class StepFailed(Exception):
    """A command ended badly; the text has its last words."""


@dataclass(frozen=True, slots=True)
class Write:
    """Put a file in place."""

    path: Path
    text: str
    told: str

    def make(self) -> None:
        """Do it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(self.path, self.text.encode())
        self.path.chmod(0o644)


@dataclass(frozen=True, slots=True)
class Remove:
    """Take a file away, and its directory when that is a unit's own and empty then."""

    path: Path
    told: str

    def make(self) -> None:
        """Do it."""
        self.path.unlink()
        parent = self.path.parent
        if parent.name == f"{UNIT}.d" and not any(parent.iterdir()):
            parent.rmdir()


@dataclass(frozen=True, slots=True)
class Run:
    """Call a command of systemd."""

    command: tuple[str, ...]

    @property
    def told(self) -> str:
        """The command to run."""
        return f"run {' '.join(self.command)}"

    def make(self) -> None:
        """Do it."""
        try:
            done = subprocess.run(self.command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise StepFailed(f"{self.command[0]} is missing: this needs systemd") from error
        if done.returncode != 0:
            raise StepFailed(f"{' '.join(self.command)} ended with {done.returncode}: {done.stderr.strip()}")


Step = Write | Remove | Run


def below(root: Path, path: PurePosixPath) -> Path:
    """Where a path of the machine lies."""
    return root / path.relative_to("/")


def install_steps(wanted: Sequence[ServiceFile], root: Path, *, now: bool) -> list[Step]:
    """The steps that bring these files into effect; `now`: and make the service run, now and after each boot."""
    steps: list[Step] = []
    for each in wanted:
        path = below(root, each.path)
        found = _read(path)
        if found == each.text or (found is not None and each.is_kept):
            continue
        if found is not None:
            _check_ours(path, found)
        steps.append(Write(path, each.text, f"{'write' if found is None else 'replace'} {path}: {each.purpose}"))
    steps += [
        Remove(path, f"remove {path}: it is not needed any more")
        for path in _installed(root)
        if path not in [below(root, each.path) for each in wanted]
    ]
    return steps + _install_commands(bool(steps), root, now=now)


def _install_commands(has_changed: bool, root: Path, *, now: bool) -> list[Step]:
    if root != Path("/"):
        return [Run(("systemctl", f"--root={root}", "enable", UNIT))] if now else []
    steps: list[Step] = []
    if has_changed and is_booted():
        steps += [
            Run(("systemd-sysusers", str(SYSUSERS_PATH))),
            Run(("systemd-tmpfiles", "--create", str(TMPFILES_PATH))),
            Run(("systemctl", "daemon-reload")),
        ]
    if now:
        steps.append(Run(("systemctl", "enable", *(["--now"] if is_booted() else []), UNIT)))
    return steps


def uninstall_steps(root: Path) -> list[Step]:
    """The steps that take away everything that was installed. Data, settings and the user stay."""
    found = _installed(root)
    for path in found:
        _check_ours(path, path.read_text(encoding="utf-8"))
    if not found:
        return []
    has_unit = any(path.name == UNIT for path in found)
    steps: list[Step] = []
    if has_unit and root != Path("/"):
        steps.append(Run(("systemctl", f"--root={root}", "disable", UNIT)))
    elif has_unit:
        steps.append(Run(("systemctl", "disable", *(["--now"] if is_booted() else []), UNIT)))
    steps += [Remove(path, f"remove {path}") for path in found]
    if root == Path("/") and is_booted():
        steps.append(Run(("systemctl", "daemon-reload")))
    return steps


def is_booted() -> bool:
    """Whether systemd runs this machine."""
    return _BOOTED.is_dir()


def _installed(root: Path) -> list[Path]:
    return [path for path in (below(root, each) for each in INSTALLED_PATHS) if path.exists()]


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _check_ours(path: Path, text: str) -> None:
    if written_by(text) is None:
        raise DeploymentError(
            f"{path} was not written by `pybroker service install`, so nothing was done. Move it away first"
        )
