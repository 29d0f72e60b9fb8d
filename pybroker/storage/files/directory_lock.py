"""`.lock`: one broker per log dir, ours or Apache Kafka's.

Kafka locks the whole file by the JVM, which is a POSIX record lock; so this is one too, and the two exclude each other.
POSIX locks belong to a process, not to a file descriptor, hence the set of locks held by this process.
"""

import fcntl
import os
import struct
from pathlib import Path
from types import TracebackType

from pybroker.storage.errors import StorageError
from pybroker.storage.files.regular_file import open_regular

FILE_NAME = ".lock"

_held_here: set[tuple[int, int]] = set()
#: struct flock of a 64 bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("@hhqqi4x")


class DirectoryInUse(StorageError):
    """Another broker has the log dir."""


def holder(log_dir: Path) -> int | None:
    """The process that holds a log dir, which must not be this one; None when nobody does, or nobody may look. A
    process outside of this pid namespace has the number 0 or less."""
    try:
        descriptor = open_regular(log_dir / FILE_NAME)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return None  # a file system without locks
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(pid)


class DirectoryLock:
    """Holds a log dir until `release`. Also a context manager. Raises DirectoryInUse when another broker has it."""

    def __init__(self, log_dir: Path) -> None:
        self.path = log_dir / FILE_NAME
        identity = self._identity()
        if identity in _held_here:
            raise self._taken()
        self._descriptor = open_regular(self.path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if isinstance(error, BlockingIOError | PermissionError):
                raise self._taken() from error
            raise
        status = os.fstat(self._descriptor)
        self._key: tuple[int, int] | None = (status.st_dev, status.st_ino)
        _held_here.add(self._key)

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _taken(self) -> DirectoryInUse:
        return DirectoryInUse(
            f"{self.path.parent} is in use by another broker (it holds {self.path}): stop that broker, or set log.dirs "
            "to another directory"
        )

    def release(self) -> None:
        """Give the directory back; harmless when already done."""
        if self._key is not None:
            _held_here.discard(self._key)
            os.close(self._descriptor)
            self._key = None

    def __enter__(self) -> "DirectoryLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
