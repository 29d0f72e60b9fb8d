"""Where profiles and measurements lie."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pybroker.config.definition import ConfigError
from pybroker.profiles.document import ProfileDocument, read_document

GENERIC = "generic"

#: Below the machine's root: the profile tuned for this machine, which `auto` takes where its rules hold.
TUNED_PROFILE = Path("etc/pybroker/profile.toml")
#: Below the machine's root: what was measured by root, or by a service.
SYSTEM_MEASUREMENT = Path("var/lib/pybroker/measurement.json")

_PROFILES = "hw-profiles"
_IN_AN_INSTALLATION = "share/pybroker"


def shipped_profiles() -> list[ProfileDocument]:
    """The profiles that come with pybroker, by name. ConfigError."""
    paths = {
        path.stem: path for directory in reversed(shipped_directories(_PROFILES)) for path in directory.glob("*.toml")
    }
    if GENERIC not in paths:
        raise ConfigError(f"{_IN_AN_INSTALLATION}/{_PROFILES}/{GENERIC}.toml is missing; install pybroker again")
    return [read_document(paths[name]) for name in sorted(paths)]


def tuned_profile(root: Path) -> ProfileDocument | None:
    """The profile tuned for this machine, if this user may read one. ConfigError when it is no profile."""
    path = root / TUNED_PROFILE
    return read_document(path) if os.access(path, os.R_OK) else None


def named_profile(asked: str, shipped: Sequence[ProfileDocument]) -> ProfileDocument:
    """The profile that `pybroker.profile` names: a shipped one, or a file (with a slash, or `.toml` at its end).
    ConfigError."""
    if "/" in asked or asked.endswith(".toml"):
        return read_document(Path(asked))
    by_name = {document.name: document for document in shipped}
    if asked not in by_name:
        raise ConfigError(
            f"pybroker.profile is {asked!r}; accepted: {', '.join(['auto', *by_name])}, or the path of a .toml file"
        )
    return by_name[asked]


def user_measurement() -> Path:
    """The file of this user's measurement, by the XDG base directories."""
    # Users without a home, as in containers, have none: the path then names nothing.
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "pybroker" / "measurement.json"


def measurement_paths(root: Path) -> list[Path]:
    """Where a saved measurement may be, the first one found counts. A captured machine has the system's measurement
    only."""
    return [*([user_measurement()] if root == Path("/") else []), root / SYSTEM_MEASUREMENT]


def shipped_directories(name: str) -> list[Path]:
    """Where files of this name's directory come with pybroker, the first one counts: beside the package in a checkout,
    below the prefix that the package was installed in."""
    places = [parent / each / name for parent in Path(__file__).resolve().parents for each in ("", _IN_AN_INSTALLATION)]
    return [place for place in places if place.is_dir()]
