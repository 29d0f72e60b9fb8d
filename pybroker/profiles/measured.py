"""What a saved measurement says of the medium. It outranks /sys, whose flags are often what somebody cared to set.

Of the file that `pybroker profile measure` saves this reads two things: `medium`, an object with `name` (flash,
rotating, unknown) and `why` (one line), and `machine`, the `Machine` it was made on, by which a measurement of other
disks is left alone. A file that is no such thing counts as none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pybroker.profiles.library import measurement_paths
from pybroker.profiles.machine import Machine
from pybroker.profiles.matching import FLASH, ROTATING

_Disk = tuple[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Medium:
    """A medium that was measured."""

    name: str
    why: str
    path: Path


def measured_medium(root: Path, machine: Machine) -> Medium | None:
    """The medium beneath the log dirs, from the first saved measurement of these disks; None where there is none."""
    for path in measurement_paths(root):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            name, why = content["medium"]["name"], content["medium"]["why"]
            measured = _disks(content["machine"]["storage"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        here = _disks(machine.as_dict()["storage"])
        if name in (FLASH, ROTATING) and here and here <= measured:
            return Medium(name, str(why), path)
    return None


def _disks(storage: Any) -> set[_Disk]:
    return {(disk["transport"], disk["model"], disk["size_bytes"]) for each in storage for disk in each["disks"]}
