"""Where test brokers keep their files: a dir of one fork server on tmpfs, which is gone when that server is.

The server holds a lock on its dir, and so does each of its brokers. A process that finds such a dir unlocked removes
it: its processes were killed together. Fails with OSError.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")


def _base() -> Path:
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    return _MEMORY if usable else Path(tempfile.gettempdir())


def _prefix() -> str:
    return f"pybroker-testing-{os.getuid()}-"


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of the dir; None when somebody else has it, or the dir is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another server may have taken it for a dead one's before it was locked.
        if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        os.close(descriptor)
        return None
    os.close(descriptor)
    return None


def make_root() -> Path:
    """A dir of one's own, locked as long as this process or one it forks is there."""
    while True:
        root = Path(tempfile.mkdtemp(prefix=_prefix(), dir=_base()))
        if _locked(root) is not None:
            return root


def sweep() -> None:
    """Remove dirs of this user whose processes are all gone."""
    for path in _base().glob(f"{_prefix()}*"):
        descriptor = _locked(path)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)
