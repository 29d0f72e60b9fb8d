"""Damage to the files of a stopped broker, as a disk, a person or a program might do it.

`DAMAGES` has what is done to a file, by name; `kinds` finds one file of each kind that a log dir has. Blocks on the
disk. A test owns the log dir.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pybroker.metadata.log_files import PARTITION_DIRECTORY

#: One file of each kind, as glob patterns below a log dir: of a partition `TOPIC-0` where it says so.
KINDS: Mapping[str, str] = {
    "segment": "TOPIC-0/*.log",
    "offset index": "TOPIC-0/*.index",
    "time index": "TOPIC-0/*.timeindex",
    "producer snapshot": "TOPIC-0/*.snapshot",
    "mark": "TOPIC-0/.pybroker_mark",
    "leader epochs": "TOPIC-0/leader-epoch-checkpoint",
    "partition.metadata": "TOPIC-0/partition.metadata",
    "metadata segment": f"{PARTITION_DIRECTORY}/*.log",
    "metadata snapshot": f"{PARTITION_DIRECTORY}/*.checkpoint",
    "quorum-state": f"{PARTITION_DIRECTORY}/quorum-state",
    "metadata leader epochs": f"{PARTITION_DIRECTORY}/leader-epoch-checkpoint",
    "metadata partition.metadata": f"{PARTITION_DIRECTORY}/partition.metadata",
    "meta.properties": "meta.properties",
    "bootstrap.checkpoint": "bootstrap.checkpoint",
    "clean shutdown": ".kafka_cleanshutdown",
    "lock": ".lock",
    "format": ".pybroker_format",
    "applied metadata": ".pybroker_applied_metadata",
    "topic ids": ".pybroker_topic_ids",
    "gap offsets": ".pybroker_gap_offsets",
    "tail rings": ".pybroker_tail_rings",
    "recovery points": "recovery-point-offset-checkpoint",
    "high watermarks": "replication-offset-checkpoint",
    "log start offsets": "log-start-offset-checkpoint",
    "cleaner offsets": "cleaner-offset-checkpoint",
}


def kinds(log_dir: Path, topic: str) -> Iterator[tuple[str, Path]]:
    """(kind, file) of those of KINDS that are there: the newest where there are several."""
    for kind, pattern in KINDS.items():
        found = sorted(log_dir.glob(pattern.replace("TOPIC", topic)))
        if found:
            yield kind, found[-1]


def empty(path: Path) -> None:
    """Nothing is left in it."""
    os.truncate(path, 0)


def remove(path: Path) -> None:
    """It is gone."""
    path.unlink()


def zero(path: Path) -> None:
    """All of it is NUL."""
    path.write_bytes(bytes(path.stat().st_size or 64))


def fill_with_junk(path: Path) -> None:
    """All of it is something else, none of it text."""
    path.write_bytes(bytes(range(128, 256)) * (path.stat().st_size // 128 + 1))


def truncate(path: Path) -> None:
    """The second half is gone."""
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path, position: int | None = None) -> None:
    """One bit of the byte at `position` is another; by default of the one in the middle. Negative: from the end.
    An empty file stays as it is."""
    content = bytearray(path.read_bytes())
    if not content:
        return
    content[len(content) // 2 if position is None else position] ^= 0x10
    path.write_bytes(content)


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


#: To the content of a file.
CONTENT_DAMAGES: Mapping[str, Callable[[Path], None]] = {
    "emptied": empty,
    "NULs": zero,
    "junk": fill_with_junk,
    "truncated": truncate,
    "flipped": flip,
}
#: Something else in its place.
KIND_DAMAGES: Mapping[str, Callable[[Path], None]] = {
    "directory": make_directory,
    "fifo": make_fifo,
    "socket": make_socket,
    "device": make_device,
    "loop": make_loop,
}
DAMAGES: Mapping[str, Callable[[Path], None]] = {**CONTENT_DAMAGES, "deleted": remove, **KIND_DAMAGES}
