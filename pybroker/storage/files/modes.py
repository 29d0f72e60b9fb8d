"""Modes of what is made in log dirs: records are for the broker's user and group alone.

A stricter umask takes more away. Nothing that exists is changed. The data plane has the same modes, in
csrc/io/linux/posix.c.
"""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE = 0o640
DIRECTORY_MODE = 0o750
READABLE_MODE = 0o644
"""Of files outside of log dirs that other users read: settings, and what was measured of the machine."""


def make_directory(path: Path, *, exist_ok: bool = False) -> None:
    """Make `path`, and those above it that are missing. OSError."""
    if not path.parent.exists():
        make_directory(path.parent, exist_ok=True)
    path.mkdir(DIRECTORY_MODE, exist_ok=exist_ok)


def data_opener(path: str, flags: int) -> int:
    """For `open` with a file that may have to be made: `open(path, "xb", opener=data_opener)`."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
