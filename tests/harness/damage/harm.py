"""What is done to one file of a stopped broker, as a disk, a person or a program might do it. Blocks on the disk."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.harness.crash.power_disk import PowerDisk

EMPTIED, DELETED, TRUNCATED, FLIPPED, NULS, JUNK = "emptied", "deleted", "truncated", "byte flipped", "NULs", "junk"
DIRECTORY, FIFO, SOCKET, DEVICE, LOOP = "a directory", "a pipe", "a socket", "a device", "a loop of links"
READ_ERROR = "EIO on read"


def data_bytes(path: Path) -> int:
    """The length of a file without the zeros behind its data, which preallocation leaves."""
    return len(path.read_bytes().rstrip(b"\0"))


# ---- its content ---------------------------------------------------------------------------------------------------


def empty(path: Path) -> None:
    """Nothing is left in it."""
    os.truncate(path, 0)


def truncate(path: Path) -> None:
    """Half of the data is gone."""
    os.truncate(path, data_bytes(path) // 2)


def flip(path: Path, position: int | None = None) -> None:
    """All bits of the byte at `position` are other ones, by default of the one in the middle of the data. A negative
    position counts from the end. An empty file stays as it is."""
    content = bytearray(path.read_bytes())
    if content:
        content[data_bytes(path) // 2 if position is None else position] ^= 0xFF
        path.write_bytes(content)


def zero(path: Path) -> None:
    """All of it is NUL."""
    path.write_bytes(bytes(path.stat().st_size or 64))


def fill_with_junk(path: Path) -> None:
    """All of it is something else, none of it text."""
    path.write_bytes(bytes(range(128, 256)) * (path.stat().st_size // 128 + 1))


# ---- something else in its place -----------------------------------------------------------------------------------


def delete(path: Path) -> None:
    """It is gone, a directory with all that is in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink(missing_ok=True)
    make(path)


def make_directory(path: Path) -> None:
    """A directory is in its place."""
    _replace(path, Path.mkdir)


def make_fifo(path: Path) -> None:
    """A pipe that nobody writes to is in its place."""
    _replace(path, os.mkfifo)


def make_socket(path: Path) -> None:
    """A socket that nobody listens at is in its place."""

    def make(place: Path) -> None:
        with socket.socket(socket.AF_UNIX) as made:
            here = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:  # a socket's path is short
                made.bind(f"/proc/self/fd/{here}/{place.name}")
            finally:
                os.close(here)

    _replace(path, make)


def make_device(path: Path) -> None:
    """A link to a device is in its place."""
    _replace(path, lambda place: place.symlink_to("/dev/zero"))


def make_loop(path: Path) -> None:
    """A symbolic link to itself is in its place."""
    _replace(path, lambda place: place.symlink_to(place.name))


CONTENT_HARMS: Mapping[str, Callable[[Path], None]] = {
    EMPTIED: empty,
    TRUNCATED: truncate,
    FLIPPED: flip,
    NULS: zero,
    JUNK: fill_with_junk,
}
KIND_HARMS: Mapping[str, Callable[[Path], None]] = {
    DIRECTORY: make_directory,
    FIFO: make_fifo,
    SOCKET: make_socket,
    DEVICE: make_device,
    LOOP: make_loop,
}
ALL_HARMS: Mapping[str, Callable[[Path], None]] = {**CONTENT_HARMS, DELETED: delete, **KIND_HARMS}
#: The columns of the table.
HARMS = (EMPTIED, DELETED, TRUNCATED, FLIPPED, DIRECTORY, READ_ERROR)


@contextmanager
def harmed(path: Path, harm: str, disk: PowerDisk | None) -> Iterator[None]:
    """`path` is damaged in the block. `READ_ERROR` moves the file to `disk`, whose reads fail meanwhile."""
    if harm != READ_ERROR:
        ALL_HARMS[harm](path)
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
