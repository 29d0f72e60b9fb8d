"""`Finding`: one thing on the machine that was looked at, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Status(Enum):
    """The meaning of a finding for a broker."""

    OK = "ok"
    #: The machine does not say.
    UNKNOWN = "unknown"
    #: It costs time.
    ADVICE = "advice"
    #: It costs data, or it makes the broker slow whatever else is done.
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Commands for a shell, printed and never run. A fix lasts until the machine starts again, and `keep` says how to
    make it last."""

    fix: str
    undo: str
    keep: str = ""
    needs_root: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy` is None where nothing is to be done, or nothing can be."""

    subject: str
    status: Status
    found: str
    wanted: str
    why: str
    remedy: Remedy | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same as an object of JSON."""
        return {**asdict(self), "status": self.status.value}


def sysctl(name: str, value: object, found: object) -> Remedy:
    """For a kernel setting."""
    keep = f"the line `{name} = {value}` in /etc/sysctl.d/90-pybroker.conf"
    return Remedy(f"sudo sysctl -w {name}={value}", f"sudo sysctl -w {name}={found}", keep)


def sysfs(path: str, value: str, found: str, keep: str) -> Remedy:
    """For a file in /sys."""
    return Remedy(f"echo {value} | sudo tee {path}", f"echo {found} | sudo tee {path}", keep)


def words(values: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *rest, last = values
    return f"{', '.join(rest)} or {last}" if rest else last
