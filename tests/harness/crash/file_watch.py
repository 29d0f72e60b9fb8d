"""`FileWatch`: wait until a file of a log dir changes, to kill a broker right then. Linux inotify, by ctypes.

Used by one thread. Directories that appear are watched from then on; what happens in one before that is missed.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_IN_MODIFY, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_IN_ISDIR = 0x40000000
_MASK = _IN_MODIFY | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
_EVENT = struct.Struct("=iIII")
_LIBC = ctypes.CDLL(None, use_errno=True)


class FileWatch:
    """Watches `root` and the directories directly in it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptor = int(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1 failed")
        self._paths: dict[int, str] = {}
        self._add(root, "")
        for entry in root.iterdir():
            if entry.is_dir():
                self._add(entry, entry.name)

    def _add(self, path: Path, name: str) -> None:
        watch = int(_LIBC.inotify_add_watch(self._descriptor, os.fsencode(path), _MASK))
        # A directory may be gone again by now.
        if watch >= 0:
            self._paths[watch] = name

    def _events(self) -> list[str]:
        try:
            data = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return []
        names = []
        position = 0
        while position < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, position)
            position += _EVENT.size
            name = os.fsdecode(data[position : position + length].rstrip(b"\0"))
            position += length
            directory = self._paths.get(watch, "")
            relative = f"{directory}/{name}" if directory else name
            if mask & _IN_ISDIR and mask & (_IN_CREATE | _IN_MOVED_TO) and not directory:
                self._add(self._root / name, name)
            names.append(relative)
        return names

    def wait(self, matches: Callable[[str], bool], timeout_seconds: float, count: int = 1) -> str | None:
        """The path (relative to the root) of the `count`-th change that `matches`; None: too few in time."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            for name in self._events():
                if matches(name):
                    count -= 1
                    if count == 0:
                        return name
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            select.select([self._descriptor], [], [], left)

    def __enter__(self) -> FileWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
