"""Reads files that fit into memory. One that does not is none that a broker writes: it is refused, as what cannot be
read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

#: An index with an entry for each of the smallest batches of the largest segment has no more, nor has any other file.
_MOST_BYTES = 512 << 20


def read_whole(path: Path) -> bytes:
    """All of it. OSError, with EFBIG for one that is too large."""
    if path.stat().st_size > _MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return path.read_bytes()
