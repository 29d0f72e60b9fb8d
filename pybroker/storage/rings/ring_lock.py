"""The user of a directory of tail rings: one broker while it runs, or the commands that bring in what an ended one has
left.

The directory's name comes from the id of a log dir, so a copy of that log dir leads to the same rings. Without a lock
the copy's broker would take them for those of an ended one, and remove them under the broker that writes to them. The
lock is `flock` on the directory itself, which the kernel drops with the process. Blocks; `StorageError` when somebody
else is there, for a broker that starts not before a second is over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pybroker.storage.errors import StorageError

#: So long a broker that starts waits for `pybroker doctor --fix`, which has the lock for moments.
_PATIENCE_S = 1.0
_RETRY_S = 0.02


def _lock(directory: Path, operation: int, *, patience_s: float = 0.0, is_made: bool = False) -> int | None:
    """A descriptor that holds the lock; None where there is no such directory, or nothing that can be locked. Where
    `is_made`, the directory is made if it is missing, also when the last one who had the lock removed it."""
    until_s = time.monotonic() + patience_s
    while True:
        if is_made:
            with contextlib.suppress(OSError):
                directory.mkdir(mode=0o700)
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() >= until_s:
                raise _in_use(directory) from None
            time.sleep(_RETRY_S)
            continue
        except OSError:
            os.close(descriptor)
            return None
        if _is_at(directory, descriptor):
            return descriptor
        os.close(descriptor)


def _in_use(directory: Path) -> StorageError:
    return StorageError(
        f"the tail rings in {directory} are in use by another broker: a log dir here has the directory.id of one of "
        "its. If it is a copy, move .pybroker_tail_rings out of it and set another pybroker.tail.ring.directory"
    )


def _is_at(directory: Path, descriptor: int) -> bool:
    """Whether the open directory still has its name: who had the lock may have removed it."""
    try:
        found = directory.stat()
    except OSError:
        return False
    opened = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def lock_for_broker(directory: Path) -> int | None:
    """Make the directory and lock it; the descriptor to close when its broker has ended. None where it cannot be
    locked: whoever opens it says why."""
    return _lock(directory, fcntl.LOCK_EX, patience_s=_PATIENCE_S, is_made=True)


def is_locked(directory: Path) -> bool:
    """Whether a broker uses the directory, without taking the lock, which would keep one from starting. Locks of other
    pid namespaces are not seen."""
    try:
        status = directory.stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    place = f" {os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino} "
    return any(" FLOCK " in line and place in line for line in locks.splitlines())


@contextlib.contextmanager
def locked_for_replay(directory: Path) -> Iterator[None]:
    """No broker uses the directory meanwhile; the log dirs of one broker may be replayed side by side."""
    descriptor = _lock(directory, fcntl.LOCK_SH, patience_s=_PATIENCE_S)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextlib.contextmanager
def locked_for_removal(directory: Path) -> Iterator[bool]:
    """Nobody else uses the directory meanwhile; False where a broker does, or the lock cannot be had."""
    try:
        descriptor = _lock(directory, fcntl.LOCK_EX)
    except StorageError:
        descriptor = None
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)
