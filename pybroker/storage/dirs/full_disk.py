"""Which failures say that a disk is full. Everything that needs no new blocks goes on then: reads, deletions, cuts."""

from __future__ import annotations

import errno

from pybroker.native.errors import NativeError, SyncFailed

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


def is_full(error: NativeError | OSError) -> bool:
    """Whether a call on files failed for lack of space or quota alone. A failed sync is never that: what it had to
    write may be lost."""
    return error.errno in _FULL and not isinstance(error, SyncFailed)
