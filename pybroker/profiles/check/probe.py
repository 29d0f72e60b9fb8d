"""`Probe`: what the kernel really lets this process do, tried out, because a version number knows no seccomp filter."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from pybroker.native import backend_refusal
from pybroker.profiles.machine import Machine


@dataclass(frozen=True, slots=True)
class Probe:
    """None for what works, else why it does not."""

    io_uring: str | None
    #: O_DIRECT, for each log dir in which a file could be made.
    direct: dict[str, str | None]


def probe_here(machine: Machine) -> Probe:
    """Probes the running kernel, and the log dirs of `machine`. Leaves nothing behind."""
    direct = {}
    for storage in machine.storage:
        log_dir = Path(storage.path).absolute()
        # Where this user may not even look counts as not there.
        directory = next(each for each in (log_dir, *log_dir.parents) if os.path.isdir(each))
        if _refusal(directory, 0) is None:
            direct[storage.path] = _refusal(directory, os.O_DIRECT)
    return Probe(backend_refusal("io_uring"), direct)


def _refusal(directory: Path, flags: int) -> str | None:
    """Why a file cannot be opened in there with these flags. It has no name, and is gone when it is closed."""
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR | flags, 0o600))
    except OSError as error:
        return os.strerror(error.errno or errno.EIO)
    return None
