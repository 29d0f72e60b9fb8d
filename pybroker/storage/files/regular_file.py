"""Opening the files of a log dir: only what is a regular file, or a symbolic link to one.

A pipe would keep whoever opens it waiting, and a device may do anything. So every file is opened without waiting, and
looked at before it is read. Any thread; blocks on the disk. Fails with `OSError`, which names the file: `WrongKind`
where something else lies in its place.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from pybroker.storage.files.modes import FILE_MODE

_READ_BYTES = 1 << 20


class WrongKind(OSError):
    """Something that is not a regular file lies where one has to be. The text says what it is and what to do."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = FILE_MODE) -> int:
    """A descriptor of the regular file at `path`; `flags` and `mode` are those of `os.open`. OSError, WrongKind."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    except OSError as error:
        # A directory that is opened for writing, a socket, and a pipe without a reader.
        if error.errno in (errno.EISDIR, errno.ENXIO):
            _check(path, os.stat(path).st_mode)
        # Somebody has a lease on it for a moment: of a regular file that is waited for.
        if error.errno != errno.EAGAIN or not path.is_file():
            raise
        descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        _check(path, os.fstat(descriptor).st_mode)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: Path) -> bytes:
    """All of a regular file. OSError, WrongKind."""
    descriptor = open_regular(path)
    try:
        pieces = []
        while piece := os.read(descriptor, _READ_BYTES):
            pieces.append(piece)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The same as text, each line ended as it is in the file. UnicodeDecodeError as well."""
    return read_bytes(path).decode(encoding)


def opener(path: str, flags: int) -> int:
    """For `open`: `with open(path, "rb", opener=opener)`."""
    return open_regular(Path(path), flags)


def _check(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EMEDIUMTYPE
    raise WrongKind(
        code,
        f"it is {_kind(mode)}, and a regular file has to be there: move it away, put the file back and start again",
        str(path),
    )


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a pipe (FIFO)"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"
