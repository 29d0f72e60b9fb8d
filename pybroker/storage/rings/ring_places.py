"""Which log dirs the rings in a directory of tail rings are of, and whether those log dirs still exist.

A broker notes it in `.log_dirs` beside its rings. A path that is missing proves nothing, because a file system may only
be unmounted. So the note has the identity of the log dir and of each directory above it up to the mount point: device,
inode and file system id. A log dir counts as gone only where the nearest directory that is left is the noted one, and
where nothing says that the log dir was moved. The note lives as long as the rings, on tmpfs, so its device numbers are
of this boot. Blocks. OSError for a note that cannot be written; one that cannot be read is as if it were missing.
"""

from __future__ import annotations

import contextlib
import enum
import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pybroker.profiles.facts.mounts import Mount, mount_of, read_mounts
from pybroker.profiles.facts.tree import Tree
from pybroker.storage.errors import StorageError
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.meta_properties import DIRECTORY_ID, MetaProperties
from pybroker.storage.files.meta_properties import FILE_NAME as META_PROPERTIES
from pybroker.storage.files.regular_file import read_text
from pybroker.storage.rings.session_note import RingSession
from pybroker.values import Value

logger = logging.getLogger(__name__)

FILE_NAME = ".log_dirs"

_VERSION = 1
_MODE = 0o600
#: A new file system has it, and nothing else.
_LOST_AND_FOUND = "lost+found"
#: File systems without log dirs, some of which have endless directories.
_VIRTUAL = ("proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "securityfs", "debugfs", "tracefs", "bpf")


class Standing(enum.Enum):
    """The fate of a log dir. `PRESENT`: it is there, here or at another path. `GONE`: it was deleted, which is certain.
    `UNKNOWN`: neither is certain."""

    PRESENT = "present"
    GONE = "gone"
    UNKNOWN = "unknown"


class Found(Value):
    """`path` is where the log dir is, or was; `why` completes "it is not known whether the log dir still exists: "."""

    standing: Standing
    path: Path
    why: str = ""


class LogDirPlace(Value):
    """A log dir whose logs have rings. `path` is as the broker was told, `real_path` has no symbolic links. `chain` has
    (device, inode) of the latter and of each directory above it, up to its mount point."""

    directory_id: bytes
    session_id: bytes
    path: Path
    real_path: Path
    chain: tuple[tuple[int, int], ...]
    file_system_id: int

    @classmethod
    def of(cls, path: Path, directory_id: bytes, session_id: bytes) -> LogDirPlace:
        """As it is now. OSError."""
        real_path = Path(os.path.realpath(path))
        mount = mount_of(_mounts(), str(real_path))
        chain = []
        for each in (real_path, *real_path.parents):
            status = os.stat(each)
            chain.append((status.st_dev, status.st_ino))
            if mount is None or str(each) == mount.mount_point:
                break  # what lies above says nothing of this file system
        return cls(
            directory_id,
            session_id,
            Path(os.path.abspath(path)),
            real_path,
            tuple(chain),
            os.statvfs(real_path).f_fsid,
        )

    def as_json(self) -> dict[str, Any]:
        """`from_json` reads it."""
        return {
            "directory": self.directory_id.hex(),
            "session": self.session_id.hex(),
            "path": str(self.path),
            "real_path": str(self.real_path),
            "chain": [list(each) for each in self.chain],
            "file_system": self.file_system_id,
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> LogDirPlace:
        """KeyError, TypeError or ValueError for what makes no sense."""
        chain = tuple((int(device), int(inode)) for device, inode in row["chain"])
        ids = (bytes.fromhex(row["directory"]), bytes.fromhex(row["session"]))
        return cls(*ids, Path(row["path"]), Path(row["real_path"]), chain, int(row["file_system"]))


def read(directory: Path) -> tuple[LogDirPlace, ...]:
    """The log dirs of the rings in `directory`; none where nothing says it."""
    path = directory / FILE_NAME
    try:
        content = json.loads(read_text(path))
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']!r}, but only version {_VERSION} is known")
        return tuple(LogDirPlace.from_json(row) for row in content["log_dirs"])
    except FileNotFoundError:
        return ()
    except (OSError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s cannot be read: %s", path, error)
        return ()


def noted_directories(parent: Path) -> list[Path]:
    """The directories of rings below `parent` that say whose rings they are for."""
    return sorted(path.parent for path in parent.glob(f"pybroker-*/{FILE_NAME}"))


def note(directory: Path, session_id: bytes, log_dirs: Iterable[tuple[Path, bytes]]) -> None:
    """Note the log dirs, (path, directory id), of the rings that will be in `directory`. Those of rings that an earlier
    run has left there stay noted, and so do those that may still name `directory`. OSError."""
    places = [LogDirPlace.of(path, directory_id, session_id) for path, directory_id in log_dirs]
    present = {place.directory_id for place in places}
    has_rings = any(directory.glob("*.ring"))
    earlier = (place for place in read(directory) if place.directory_id not in present)
    places += [place for place in earlier if has_rings or _may_name(place, directory)]
    content = {"version": _VERSION, "log_dirs": [place.as_json() for place in places]}
    write_durably(directory / FILE_NAME, json.dumps(content).encode(), _MODE)


def forget(directory: Path) -> None:
    """Remove the note where no ring is left, and the directory when it is empty then. Both stay for a log dir that may
    still name the directory, since one that is out of service could not be told: its next start would miss it."""
    with contextlib.suppress(OSError):
        if any(directory.glob("*.ring")) or any(_may_name(place, directory) for place in read(directory)):
            return
        (directory / FILE_NAME).unlink(missing_ok=True)
        os.rmdir(directory)


def _may_name(place: LogDirPlace, directory: Path) -> bool:
    """Whether the log dir says that its rings are in `directory`, or cannot be asked. Looks at its old path alone, as
    other file systems may not answer."""
    found = _at_its_path(place)
    if found.standing is not Standing.PRESENT:
        return found.standing is Standing.UNKNOWN
    try:
        session = RingSession.read(found.path)
    except (StorageError, OSError):
        return True
    return session is not None and os.path.realpath(session.directory) == os.path.realpath(directory)


# ---- is it still there? ----------------------------------------------------------------------------------------------


def look(place: LogDirPlace, others: Iterable[Path] = ()) -> Found:
    """Finds out the fate of the log dir. `others` are log dirs that it may be as well, by another path."""
    found = _at_its_path(place)
    if found.standing is Standing.PRESENT:
        return found
    moved = next((path for path in _candidates(place, others) if _is_it(place, path)), None)
    return found if moved is None else Found(Standing.PRESENT, moved)


def _at_its_path(place: LogDirPlace) -> Found:
    levels = (place.real_path, *place.real_path.parents)
    for level, path in enumerate(levels):
        try:
            identity = _identity(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            return _unknown(place, f"{path}: {error.strerror}")
        if level == 0:
            return _in_its_place(place, identity)
        if level >= len(place.chain):
            break
        if identity != (*place.chain[level], place.file_system_id):
            return _unknown(place, f"{path} is not the directory that it lay in, and may wait for a mount")
        return Found(Standing.GONE, place.path)
    return _unknown(place, f"{levels[len(place.chain) - 1]}, where its file system was mounted, is missing")


def _in_its_place(place: LogDirPlace, identity: tuple[int, int, int]) -> Found:
    """Something lies at the path of the log dir."""
    path = place.real_path
    try:
        if _is_it(place, path):
            return Found(Standing.PRESENT, path)
        properties = MetaProperties.read(path)
        is_empty = set(os.listdir(path)) <= {_LOST_AND_FOUND}
    except (StorageError, OSError) as error:
        return _unknown(place, str(error))
    if properties is None and not is_empty:
        return _unknown(place, f"{path} has files and no meta.properties that says whose they are")
    if properties is not None and not properties.has_directory_id:
        return _unknown(place, f"{path}/{META_PROPERTIES} has no {DIRECTORY_ID}, so it may be that log dir or another")
    if _names_session(place, path):
        return _unknown(
            place, f"{path}/{META_PROPERTIES} has another {DIRECTORY_ID}, but the log dir names these rings"
        )
    if identity == (*place.chain[0], place.file_system_id):
        return Found(Standing.GONE, place.path)  # emptied, and perhaps used again
    if len(place.chain) == 1 or any(str(path) == mount.mount_point for mount in _mounts()):
        return _unknown(place, f"another file system is mounted at {path}, or none where one was")
    try:
        above = _identity(path.parent)
    except OSError as error:
        return _unknown(place, str(error))
    if above != (*place.chain[1], place.file_system_id):
        return _unknown(place, f"{path.parent} is not the directory that it lay in, and may wait for a mount")
    return Found(Standing.GONE, place.path)


def _unknown(place: LogDirPlace, why: str) -> Found:
    return Found(Standing.UNKNOWN, place.path, why)


def _identity(path: Path) -> tuple[int, int, int]:
    status = os.stat(path, follow_symlinks=False)
    return status.st_dev, status.st_ino, os.statvfs(path).f_fsid


def _is_it(place: LogDirPlace, path: Path) -> bool:
    """Whether the log dir, or a copy of it, is at `path`. Without an id the session of its rings tells. That is weaker,
    since all log dirs of a broker have the same session."""
    with contextlib.suppress(StorageError, OSError):
        properties = MetaProperties.read(path)
        if properties is not None and properties.has_directory_id:
            return properties.directory_id == place.directory_id
    return _names_session(place, path)


def _names_session(place: LogDirPlace, path: Path) -> bool:
    with contextlib.suppress(StorageError, OSError):
        session = RingSession.read(path)
        return session is not None and session.session_id == place.session_id
    return False


def _candidates(place: LogDirPlace, others: Iterable[Path]) -> Iterator[Path]:
    """Where a log dir that was moved may be: beside its old place, or at or directly below a mount point."""
    yield place.path
    yield from others
    yield from _directories(place.real_path.parent)
    for mount in _mounts():
        if mount.file_system not in _VIRTUAL:
            yield Path(mount.mount_point)
            yield from _directories(Path(mount.mount_point))


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _mounts() -> list[Mount]:
    return read_mounts(Tree(Path("/")))
