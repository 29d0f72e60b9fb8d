"""Atomic, durable replacement of small files.

Runs on whatever thread calls it, blocks for two syncs, owns nothing. Fails with `OSError` only.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pybroker.storage.files.modes import FILE_MODE


def fsync_directory(directory: Path) -> None:
    """Make created, renamed and removed names of `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with naming(directory):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_or_forget(descriptor: int) -> None:
    """fdatasync. After a failure the unwritten pages are clean in memory, and the next sync would call them durable. So
    they are forgotten, and the next reader of the file gets what the disk has."""
    try:
        os.fdatasync(descriptor)
    except OSError:
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError of a call on a file descriptor say which file it was."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def keep_mode(descriptor: int, path: Path) -> None:
    """Give a new file the mode of the one at `path`, whose place it takes: whoever may read that one goes on to."""
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode != stat.S_IMODE(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, mode)


def write_durably(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace `path` by `data`: temporary file, sync, rename, sync of the directory. Without `mode` a file that is
    there keeps its own, and a new one gets that of a log dir's files."""
    temporary = path.with_name(path.name + ".tmp")
    # A leftover of an earlier crash may be read-only (snapshots are), so it cannot simply be reopened.
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, FILE_MODE if mode is None else mode)
    try:
        view = memoryview(data)
        with naming(path):
            while view:
                view = view[os.write(descriptor, view) :]
            if mode is None:
                keep_mode(descriptor, path)
            os.fsync(descriptor)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    fsync_directory(path.parent)
