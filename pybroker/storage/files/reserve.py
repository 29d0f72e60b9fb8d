"""Disk space set aside behind the end of a file that has to grow even when the disk is full. Linux fallocate.

Runs on whatever thread calls it; a call blocks for as long as the file system takes to find blocks.
"""

from __future__ import annotations

import ctypes
import os

_KEEP_SIZE = 1
#: The sizes to ask for, in this order, when there is no more.
RESERVE_BYTES = (4 << 20, 1 << 20, 1 << 18)
_LIBC = ctypes.CDLL(None, use_errno=True)


def reserve(descriptor: int, position: int) -> int:
    """Set space aside from `position` on; the file's size stays. How many bytes there are now: 0 when the disk is full
    or the file system has no such call."""
    for length in RESERVE_BYTES:
        if _LIBC.fallocate(descriptor, _KEEP_SIZE, ctypes.c_int64(position), ctypes.c_int64(length)) == 0:
            return length
    return 0


def release(descriptor: int) -> None:
    """Give back whatever lies behind the end of the file. OSError."""
    os.ftruncate(descriptor, os.fstat(descriptor).st_size)
