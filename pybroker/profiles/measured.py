"""The medium according to a saved measurement. It outranks /sys, whose flags are often what somebody cared to set.

This module reads two members of the file that `pybroker profile measure` saves. `medium` is an object with `name`
(flash, rotating, unknown) and `why` (one line). `machine` is the `Machine` it was made on, so a measurement of other
disks is ignored. A file that is no such thing counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pybroker.profiles.library import measurement_paths
from pybroker.profiles.machine import Machine
from pybroker.profiles.matching import FLASH, ROTATING, UNKNOWN
from pybroker.values import Value

_Disk = tuple[Any, Any, Any]


class Medium(Value):
    """The medium as measured: flash, rotating, or unknown where the measurement could not tell."""

    name: str
    why: str
    path: Path

    @property
    def outranks(self) -> str | None:
        """The medium, where measuring could tell."""
        return self.name if self.name != UNKNOWN else None


def measured_medium(root: Path, machine: Machine) -> Medium | None:
    """The medium beneath the log dirs, from the first saved measurement of these disks; None where there is none."""
    for path in measurement_paths(root):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            name, why = content["medium"]["name"], content["medium"]["why"]
            is_of_these = are_disks_of(machine, content["machine"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if name in (FLASH, ROTATING, UNKNOWN) and is_of_these:
            return Medium(name, str(why), path)
    return None


def are_disks_of(machine: Machine, measured: Mapping[str, Any]) -> bool:
    """Whether the disks beneath the log dirs are among those of a measured machine (its `as_dict`). KeyError or
    TypeError when that is none."""
    here = {(disk.transport, disk.model, disk.size_bytes) for each in machine.storage for disk in each.disks}
    return bool(here) and here <= _disks(measured["storage"])


def _disks(storage: Any) -> set[_Disk]:
    return {(disk["transport"], disk["model"], disk["size_bytes"]) for each in storage for disk in each["disks"]}
