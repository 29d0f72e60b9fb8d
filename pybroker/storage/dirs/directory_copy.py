"""`DirectoryCopy`: a copy of a partition's directory that follows the original while that one grows.

One thread at a time; every call blocks on the disk. The original's files are appended to (`.log`), replaced, removed or
renamed away by others meanwhile; a pass copies what it lacks and removes what the original no longer has. A log that is
cut and grows again has other bytes in files that look as if they had only grown, so its segments are copied anew. Fails
with `OSError`, whose filename says which of the two has failed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pybroker.storage.files.atomic import fsync_directory, naming
from pybroker.storage.files.modes import DIRECTORY_MODE, FILE_MODE
from pybroker.storage.files.regular_file import open_regular

_CHUNK_BYTES = 1 << 20
#: Files that other work is not done with, or done with for good.
_PASSING_SUFFIXES = (".deleted", ".cleaned", ".swap", ".tmp")
#: A file that was changed so shortly before it was copied may have been changed once more in the same tick.
_TICK_NS = 50_000_000


class LogFile(NamedTuple):
    """A segment's file, of which so many bytes shall be copied. The generation identifies it as well as the inode,
    which may be used again once the cleaner's files have taken a file's place."""

    size_bytes: int
    generation: int = 0


@dataclass(slots=True)
class _Copied:
    """The copied part of a file, and the state of the original then."""

    inode: int
    size_bytes: int
    modified_ns: int = 0
    copied_ns: int = 0
    generation: int = 0


class DirectoryCopy:
    """Copies `source` to `target`, which is made. `copied_bytes` is what the `.log` files in it hold by now, and
    `cut_count` the log's when the last pass began."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source = source
        self.target = target
        self.cut_count = 0
        self._files: dict[str, _Copied] = {}
        target.mkdir(DIRECTORY_MODE)

    @property
    def copied_bytes(self) -> int:
        """The copied bytes of log segments."""
        return sum(each.size_bytes for name, each in list(self._files.items()) if name.endswith(".log"))

    def copied_of(self, name: str) -> int:
        """Bytes of one file."""
        found = self._files.get(name)
        return 0 if found is None else found.size_bytes

    def follow(self, log_files: Mapping[str, LogFile], cut_count: int, pace: Callable[[int], None]) -> int:
        """One pass; how many bytes of segments were missing. `log_files` are the log's, `cut_count` is from before they
        were listed. `pace` is called with the size of every piece that was copied; it may wait, or raise to end the
        pass. All is synced."""
        if cut_count != self.cut_count:
            for name in [name for name in self._files if name.endswith(".log")]:
                self._remove(name)
            self.cut_count = cut_count
        missing_bytes = sum(each.size_bytes for each in log_files.values()) - self.copied_bytes
        wanted = set(log_files)
        for name in os.listdir(self.source):
            if not name.endswith((*_PASSING_SUFFIXES, ".log")):
                wanted.add(name)
                self._copy_whole(name, pace)
        for name, file in log_files.items():
            self._copy_log(name, file, pace)
        for name in [name for name in self._files if name not in wanted]:
            self._remove(name)
        fsync_directory(self.target)
        return missing_bytes

    def _remove(self, name: str) -> None:
        (self.target / name).unlink(missing_ok=True)
        del self._files[name]

    def _copy_log(self, name: str, file: LogFile, pace: Callable[[int], None]) -> None:
        with _opened(self.source / name) as source:
            if source is None:
                return
            status = os.fstat(source)
            done = self._files.get(name)
            is_other = done is None or (done.inode, done.generation) != (status.st_ino, file.generation)
            if done is None or is_other or done.size_bytes > file.size_bytes:
                done = self._files[name] = _Copied(status.st_ino, 0, generation=file.generation)
                (self.target / name).unlink(missing_ok=True)
            elif done.size_bytes == file.size_bytes:
                return
            self._append(name, source, done, file.size_bytes, pace)
            os.utime(self.target / name, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _append(self, name: str, source: int, done: _Copied, size_bytes: int, pace: Callable[[int], None]) -> None:
        target = os.open(self.target / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.lseek(target, done.size_bytes, os.SEEK_SET)
            while done.size_bytes < size_bytes:
                count = self._send(name, source, target, done.size_bytes, size_bytes)
                if count == 0:
                    break  # The cleaner is putting another one in its place.
                done.size_bytes += count
                pace(count)
            with naming(self.target / name):
                os.fsync(target)
            os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(target)

    def _send(self, name: str, source: int, target: int, position: int, end: int) -> int:
        length = min(_CHUNK_BYTES, end - position)
        try:
            return os.sendfile(target, source, position, length)
        except OSError as error:
            # One call on two files: whoever can be read has not failed.
            with naming(self.source / name):
                os.pread(source, length, position)
            error.filename = str(self.target / name)
            raise

    def _copy_whole(self, name: str, pace: Callable[[int], None]) -> None:
        with _opened(self.source / name) as source:
            if source is None:
                return
            status = os.fstat(source)
            done = self._files.get(name)
            if done is not None and _is_same(done, status):
                return
            done = _Copied(status.st_ino, 0, status.st_mtime_ns, time.time_ns())
            (self.target / name).unlink(missing_ok=True)
            # In pieces: what recovery has set aside may be as large as a segment.
            self._append(name, source, done, status.st_size, pace)
            os.utime(self.target / name, ns=(status.st_atime_ns, status.st_mtime_ns))
            self._files[name] = done


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """The file to read from, closed at the end; None when it has gone."""
    try:
        source = open_regular(path)
    except FileNotFoundError:
        source = None
    try:
        yield source
    finally:
        if source is not None:
            os.close(source)


def _is_same(done: _Copied, status: os.stat_result) -> bool:
    looks_alike = (done.inode, done.size_bytes, done.modified_ns) == (
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
    )
    return looks_alike and done.modified_ns < done.copied_ns - _TICK_NS
