"""Hardware profiles: what a class of machines sets, read from `hw-profiles/<name>.toml`.

Read once at start. Explicit settings (`pybroker.reactors`, ...) win over the profile.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError

GENERIC = "generic"

_IN_A_CHECKOUT = "hw-profiles"
_IN_AN_INSTALLATION = "share/pybroker/hw-profiles"


@dataclass(frozen=True, slots=True)
class Profile:
    """What the data plane is started with on this machine."""

    name: str
    reactor_count: int
    spin_us: int
    append_engine: str
    buffer_budget_bytes: int


def load_profile(config: BrokerConfig) -> Profile:
    """The profile that `pybroker.profile` names (auto: generic, until a class of machines is measured), with the
    explicit settings on top. ConfigError when there is no such profile."""
    asked = config.get_str("pybroker.profile")
    name = GENERIC if asked == "auto" else asked
    values = _read(name)
    reactors, spin_us = config.get_int("pybroker.reactors"), config.get_int("pybroker.spin.us")
    is_budget_set = config.is_set("pybroker.buffer.budget.bytes")
    return Profile(
        name=name,
        reactor_count=reactors or _reactor_count(values),
        spin_us=spin_us if spin_us >= 0 else int(values["spin_us"]),
        append_engine=config.get_str("pybroker.append.engine"),
        buffer_budget_bytes=(
            config.get_int("pybroker.buffer.budget.bytes") if is_budget_set else int(values["buffer_budget_bytes"])
        ),
    )


def _read(name: str) -> dict[str, Any]:
    directories = _directories()
    for directory in directories:
        path = directory / f"{name}.toml"
        if path.is_file():
            content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["set"]
            return content
    known = sorted({path.stem for directory in directories for path in directory.glob("*.toml")})
    raise ConfigError(f"pybroker.profile is {name!r}; accepted: {', '.join(['auto', *known])}")


def _directories() -> list[Path]:
    """Beside the package in a checkout; below the prefix that the package was installed in."""
    places = [
        parent / each for parent in Path(__file__).resolve().parents for each in (_IN_A_CHECKOUT, _IN_AN_INSTALLATION)
    ]
    return [place for place in places if place.is_dir()]


def _reactor_count(values: dict[str, Any]) -> int:
    """`reactors` is a number, or "half" of the CPUs this process may use."""
    if values["reactors"] != "half":
        return int(values["reactors"])
    return max(1, min(len(os.sched_getaffinity(0)) // 2, int(values["reactors_max"])))
