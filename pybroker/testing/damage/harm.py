"""What is done to one file of a stopped broker."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pybroker.testing.crash.power_disk import PowerDisk

EMPTIED, DELETED, TRUNCATED, FLIPPED = "emptied", "deleted", "truncated", "byte flipped"
DIRECTORY, READ_ERROR = "a directory", "EIO on read"


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def data_bytes(path: Path) -> int:
    """The length of a file without the zeros behind its data, which preallocation leaves."""
    return len(path.read_bytes().rstrip(b"\0"))


def _truncate(path: Path) -> None:
    """Half of the data is gone."""
    os.truncate(path, data_bytes(path) // 2)


def _flip(path: Path) -> None:
    """All bits of the byte in the middle of the data are other ones."""
    middle = data_bytes(path) // 2
    with path.open("r+b") as file:
        file.seek(middle)
        (byte,) = file.read(1) or b"\0"
        file.seek(middle)
        file.write(bytes([byte ^ 0xFF]))


def _become_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


_HARMS: dict[str, Callable[[Path], None]] = {
    EMPTIED: _empty,
    DELETED: _delete,
    TRUNCATED: _truncate,
    FLIPPED: _flip,
    DIRECTORY: _become_directory,
}
HARMS = (*_HARMS, READ_ERROR)


@contextmanager
def harmed(path: Path, harm: str, disk: PowerDisk | None) -> Iterator[None]:
    """`path` is damaged in the block. `READ_ERROR` moves the file to `disk`, whose reads fail meanwhile."""
    if harm != READ_ERROR:
        _HARMS[harm](path)
        yield
        return
    assert disk is not None
    moved = disk.path / path.name
    shutil.copy2(path, moved)
    path.unlink()
    path.symlink_to(moved)
    # The name and the inode stay known to the kernel; the data has to come from the drive.
    with moved.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        disk.fail("read", errno.EIO)
        try:
            yield
        finally:
            disk.fail("read", 0)
    moved.unlink()


def applies(path: Path, harm: str) -> bool:
    """A folder can only be deleted, and an empty file neither shortened nor flipped."""
    if path.is_dir():
        return harm == DELETED
    return harm in (DELETED, DIRECTORY) or data_bytes(path) > 1
