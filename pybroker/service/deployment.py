"""The files that make a service of a broker, as they are to lie on one machine. Nothing here touches the machine.

They come from `deploy/`. Each installed file begins with a line that says so, with a digest of the rest. So changes by
hand can be told, and nobody else's file is ever taken for ours.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pybroker import __version__
from pybroker.config.broker import BrokerConfig
from pybroker.profiles.library import GENERIC, shipped_directories

UNIT = "pybroker.service"
PROPERTIES = PurePosixPath("/etc/pybroker/server.properties")
STATE_DIRECTORY = PurePosixPath("/var/lib/pybroker")

_UNIT_PATH = PurePosixPath("/etc/systemd/system") / UNIT
_DROP_INS = PurePosixPath(f"{_UNIT_PATH}.d")
SYSUSERS_PATH = PurePosixPath("/etc/sysusers.d/pybroker.conf")
TMPFILES_PATH = PurePosixPath("/etc/tmpfiles.d/pybroker.conf")
_PROFILE_PATH = _DROP_INS / "50-profile.conf"
_LOG_DIRS_PATH = _DROP_INS / "50-log-dirs.conf"
INSTALLED_PATHS = (_UNIT_PATH, _PROFILE_PATH, _LOG_DIRS_PATH, SYSUSERS_PATH, TMPFILES_PATH)
"""All that `files` may give, in the order of their installation."""

_EXECUTABLE = "/opt/pybroker/bin/pybroker"  # what the shipped unit has
_MARK = re.compile(r"# Written by `pybroker service install` of (\S+): ([0-9a-f]{16})\n")
#: The directories that ProtectHome= hides from the service.
_HIDDEN = (PurePosixPath("/home"), PurePosixPath("/root"), PurePosixPath("/run/user"))


class DeploymentError(Exception):
    """A service cannot be made of this; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """A file to install, and what for. One that `is_kept` is left as it is where it is."""

    path: PurePosixPath
    text: str
    purpose: str
    is_kept: bool = False


def files(
    executable: PurePosixPath, properties: PurePosixPath, profile: str, config: BrokerConfig
) -> list[ServiceFile]:
    """The files for a broker started as `executable serve properties`, with the times of a hardware profile, and with
    the log dirs of `config`. DeploymentError."""
    log_dirs = _log_dirs(config)
    check_visible(executable, "the program")
    check_visible(properties, "the configuration")
    for each in log_dirs:
        check_visible(each, "the log dir")
    unit = shipped(UNIT).replace(f"{_EXECUTABLE} serve {PROPERTIES}", f"{executable} serve {properties}")
    made = [
        ServiceFile(_UNIT_PATH, unit, "the unit"),
        ServiceFile(_PROFILE_PATH, profile_drop_in(profile), f"times for the hardware profile {profile}"),
    ]
    if log_dirs:
        made.append(ServiceFile(_LOG_DIRS_PATH, _log_dirs_drop_in(log_dirs), "log dirs that the service may write to"))
    tmpfiles = shipped("pybroker.tmpfiles.conf") + "".join(
        f"d {each} :0750 :pybroker :pybroker -\n" for each in log_dirs
    )
    made += [
        ServiceFile(SYSUSERS_PATH, shipped("pybroker.sysusers.conf"), "the user pybroker"),
        ServiceFile(TMPFILES_PATH, tmpfiles, "its directories, and that nobody cleans up its tail rings"),
    ]
    marked = [ServiceFile(each.path, _marked(each.text), each.purpose) for each in made]
    if properties != PROPERTIES:
        return marked
    return [*marked, ServiceFile(PROPERTIES, shipped("server.properties"), "settings to begin with", is_kept=True)]


def shipped(name: str) -> str:
    """A file of `deploy/`. DeploymentError."""
    for directory in shipped_directories("deploy"):
        path = directory / name
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise DeploymentError(f"deploy/{name} is missing; install pybroker again")


def profile_drop_in(profile: str) -> str:
    """The times of a shipped hardware profile; of a machine's own profile those of generic. DeploymentError."""
    known = any((directory / "profiles" / f"{profile}.conf").is_file() for directory in shipped_directories("deploy"))
    return shipped(f"profiles/{profile if known else GENERIC}.conf")


def check_visible(path: PurePosixPath, name: str) -> None:
    """DeploymentError for a path that the unit's sandbox hides."""
    for hidden in _HIDDEN:
        if path.is_relative_to(hidden):
            raise DeploymentError(
                f"{name} {path} lies below {hidden}, which is hidden from the service. Put it elsewhere: pybroker into "
                "a virtual environment in /opt/pybroker, log dirs into /var/lib/pybroker"
            )


def written_by(text: str) -> tuple[str, bool] | None:
    """(version that wrote an installed file, whether it is as it was written); None for a file of others."""
    mark = _MARK.match(text)
    return None if mark is None else (mark[1], mark[2] == _digest(text[mark.end() :]))


def _marked(text: str) -> str:
    return f"# Written by `pybroker service install` of {__version__}: {_digest(text)}\n{text}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _log_dirs(config: BrokerConfig) -> list[PurePosixPath]:
    """Those that are not below the directory that the unit has anyway."""
    every = dict.fromkeys(PurePosixPath(path) for path in (*config.log_dirs, config.metadata_log_dir))
    for each in every:
        if not each.is_absolute():
            raise DeploymentError(f"log.dirs={each}: a service has no working directory; give the whole path")
    return [each for each in every if not each.is_relative_to(STATE_DIRECTORY)]


def _log_dirs_drop_in(log_dirs: Sequence[PurePosixPath]) -> str:
    quoted = " ".join(f'"{_escaped(each)}"' for each in log_dirs)
    return f"[Unit]\nRequiresMountsFor={quoted}\n\n[Service]\nReadWritePaths={quoted}\n"


def _escaped(path: PurePosixPath) -> str:
    """In quotes, as systemd.syntax(7) has it; % begins a specifier."""
    return str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
