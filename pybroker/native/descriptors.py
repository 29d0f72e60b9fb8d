"""The process's file descriptors, shared between logs and clients by the data plane (csrc/io/descriptors.h).

Process-wide; any thread. Up to 64 descriptors are kept for everything but logs and connections. In the rest, logs and
connections each leave an eighth of the limit to the other. Beyond that, the first one to ask gets them.
"""

from __future__ import annotations

import resource

from pybroker.native.bindings import lib
from pybroker.values import Value

#: The interpreter, reactors, lock files, 32 connections to the metrics endpoint, and files that are open for a moment.
_KEPT = 64
_KEPT_SHARE = 4
_RESERVE_SHARE = 8
_MOST: int = 2**31 - 2


class LogDescriptors(Value):
    """`limit` is RLIMIT_NOFILE, `log_count` how many logs it has room for beside the clients."""

    limit: int
    log_count: int

    def remedy(self) -> str:
        """The end of a message about a log that finds no room."""
        return (
            f"the limit of {self.limit} file descriptors has room for {self.log_count} partitions beside the clients: "
            "raise it (LimitNOFILE in the unit, ulimit -n, or prlimit for the running process)"
        )


def share_descriptors() -> None:
    """Let logs and clients share the descriptors that the process may have now (RLIMIT_NOFILE)."""
    limit = _limit()
    lib.pb_process_limit_descriptors(limit, min(_KEPT, limit // _KEPT_SHARE), limit // _RESERVE_SHARE)


def log_descriptors() -> LogDescriptors | None:
    """The room for logs at the moment; None while nothing bounds it. The limit may have been raised since the start."""
    told = int(lib.pb_process_descriptor_limit())
    if told == 0:
        return None
    if told != _limit():
        share_descriptors()
    return LogDescriptors(_limit(), int(lib.pb_process_log_descriptors()))


def _limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)
