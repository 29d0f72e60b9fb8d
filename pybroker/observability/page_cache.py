"""How much of the logs lies in the page cache: cachestat(2) over their segments. Blocking.

Segments are opened to ask about them, and not read. Kernels before 6.5 and sandboxes have no such call: then nothing is
told.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_SYS_CACHESTAT = 451  # the same number on every architecture
_HOLD_S = 0.001
_PAUSE_S = 0.0005


class PageCache(NamedTuple):
    """Bytes of files that are in the page cache; of them, those not yet on their way to the disk, and those on it."""

    cached_bytes: int
    dirty_bytes: int
    writeback_bytes: int


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Pages(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")]


_libc = ctypes.CDLL(None, use_errno=True)


def page_cache(directories: Iterable[Path]) -> PageCache | None:
    """The segments in these directories of partitions, together; None where the kernel does not tell. Gives up the
    interpreter's lock now and then."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    sums = [0, 0, 0]
    held_since = time.monotonic()
    for directory in directories:
        for name in _segments(directory):
            pages = _pages(name)
            if pages is None:
                return None
            for index, count in enumerate((pages.cached, pages.dirty, pages.writeback)):
                sums[index] += count * page_bytes
        if time.monotonic() - held_since > _HOLD_S:
            time.sleep(_PAUSE_S)
            held_since = time.monotonic()
    return PageCache(*sums)


def _segments(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as found:
            return [entry.path for entry in found if entry.name.endswith(".log")]
    except OSError:
        return []  # deleted or moved meanwhile


def _pages(path: str) -> _Pages | None:
    pages = _Pages()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return pages  # deleted or moved meanwhile
    try:
        everything = _Range(0, 0)
        code = _libc.syscall(_SYS_CACHESTAT, descriptor, ctypes.byref(everything), ctypes.byref(pages), 0)
        if code < 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP):
            return None
    finally:
        os.close(descriptor)
    return pages
