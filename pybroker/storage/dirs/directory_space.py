"""`DirectorySpace`: how much of a log dir's file system is free, and whether that is enough for producers. Pure;
`measure` alone asks the file system.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

SHARE = 100
"""The default reserve is 1/100 of the file system,"""
MOST_BYTES = 1 << 30
"""and no more than this."""


class Measured(NamedTuple):
    """The space of a file system, as users other than root see it."""

    total_bytes: int
    free_bytes: int


def measure(path: Path) -> Measured:
    """How much the file system of `path` has. OSError. Blocks."""
    found = os.statvfs(path)
    return Measured(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def reserve_of(setting: int, total_bytes: int) -> int:
    """The value of pybroker.log.dir.reserve.bytes in bytes, on a file system of that size."""
    return min(MOST_BYTES, total_bytes // SHARE) if setting < 0 else setting


class DirectorySpace:
    """The state of one log dir. Low from the moment when less than the reserve is free until half as much more is."""

    def __init__(self) -> None:
        self.reserve_bytes = 0
        self.free_bytes = 0
        self.is_low = False

    @property
    def enough_bytes(self) -> int:
        """So many free ones end being low."""
        return self.reserve_bytes + self.reserve_bytes // 2

    def update(self, setting: int, found: Measured) -> bool:
        """Take over what was measured; whether it has become low, or is low no more."""
        self.reserve_bytes = reserve_of(setting, found.total_bytes)
        self.free_bytes = found.free_bytes
        was_low = self.is_low
        self.is_low = self.free_bytes < (self.enough_bytes if was_low else self.reserve_bytes)
        return self.is_low is not was_low
