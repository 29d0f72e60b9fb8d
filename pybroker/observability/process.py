"""This process's use of the machine, read from /proc at the moment of the call."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def age_seconds() -> float:
    """Time since this process began, its interpreter's start included."""
    # Field 22, counted after the name in parentheses, which may have blanks.
    started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / _TICKS_PER_SECOND


def open_file_count() -> int:
    """Open file descriptors, sockets among them."""
    return len(os.listdir("/proc/self/fd")) - 1  # one of them is that directory


def open_file_limit() -> int:
    """How many the process may have (RLIMIT_NOFILE)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def resident_bytes() -> int:
    """Resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def read_bytes() -> int:
    """Bytes that the process has read from files and sockets since it began, by system calls that copy."""
    # The first line of proc_pid_io(5): "rchar: 123".
    return int(Path("/proc/self/io").read_text().split()[1])
