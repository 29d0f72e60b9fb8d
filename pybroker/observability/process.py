"""What this process holds of the machine, read from /proc at the moment of the call."""

from __future__ import annotations

import os
import resource
from pathlib import Path


def open_file_count() -> int:
    """Open file descriptors, sockets among them."""
    return len(os.listdir("/proc/self/fd")) - 1  # one of them is that directory


def open_file_limit() -> int:
    """How many the process may have (RLIMIT_NOFILE)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def resident_bytes() -> int:
    """Resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
