"""Keeps descriptors 0 to 2 away from data files when the command was started with closed standard streams.

The kernel gives out the lowest free descriptor. Without this a segment file could become descriptor 2, and a message
of the C library, or of a child process, would be written into it. Called before anything that keeps a file open.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

STANDARD_ERROR = 2
_NAMES = ("stdin", "stdout", "stderr")
_closed: set[int] = set()


def occupy() -> frozenset[int]:
    """Open /dev/null as each of the descriptors 0 to 2 that is closed, and give `sys` a stream for it; which those
    were. Children inherit them. OSError when /dev/null cannot be opened."""
    found = [number for number in range(len(_NAMES)) if not _is_open(number)]
    for number in found:
        _occupy(number)
        setattr(sys, _NAMES[number], _stream(number))
        setattr(sys, f"__{_NAMES[number]}__", getattr(sys, _NAMES[number]))
    _closed.update(found)
    return frozenset(found)


def was_closed(number: int) -> bool:
    """Whether `occupy` found that descriptor closed, so that what is written to it reaches nobody."""
    return number in _closed


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _occupy(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(nowhere, number)
        os.close(nowhere)


def _stream(number: int) -> TextIO:
    return open(number, "r" if number == 0 else "w", encoding="utf-8", errors="backslashreplace", closefd=False)
