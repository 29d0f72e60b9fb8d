"""The meaning of a failing disk: which failures pass, which end a partition, which end a log dir. On the asyncio loop.

A full disk passes, and so does a shortage of memory or file handles: the work is done again later. A file that somebody
else has cut or removed ends its partition. Any other answer of a disk (EIO, a file system that has become read-only,
any failed sync) ends the whole log dir, as in Apache Kafka. Its partitions are served again after a restart, which
reads what the disk really has.
"""

from __future__ import annotations

import enum
import errno
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pybroker.native.errors import NativeError, SyncFailed
from pybroker.observability.event_log import event
from pybroker.storage.dirs.full_disk import is_full
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.logs.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class Consequence(enum.Enum):
    """The parts that a failure puts out of service."""

    NOTHING = "nothing"
    PARTITION = "partition"
    DIRECTORY = "log dir"


_PASSING = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.EBUSY,
        errno.ESHUTDOWN,
    )
)
#: With these nothing was synced; any other failure of a sync is final.
_UNSYNCED = frozenset((errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EBUSY))
#: Something else lies in the place of a file, or keeps us from it: the disk is not at fault.
_CHANGED = frozenset(
    (
        errno.ESTALE,
        errno.ENODATA,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EMEDIUMTYPE,
        errno.ELOOP,
        errno.EACCES,
        errno.EPERM,
    )
)


def consequence(error: NativeError | OSError) -> Consequence:
    """The meaning of a failed call on a partition's files."""
    if error.errno is None or error.errno in (_UNSYNCED if isinstance(error, SyncFailed) else _PASSING):
        return Consequence.NOTHING
    if isinstance(error, SyncFailed):
        return Consequence.DIRECTORY
    return Consequence.PARTITION if error.errno in _CHANGED else Consequence.DIRECTORY


class FailureHandler(Protocol):
    """Is told of what is out of service, once each; it must not raise."""

    def on_directory_failed(self, directory: LogDirectory) -> None: ...

    def on_log_failed(self, log: PartitionLog) -> None: ...


class LogFailures:
    """Which log dirs are out of service. `offline` has the reasons by path, of those too that could not be used at the
    start."""

    def __init__(self, offline: Mapping[Path, str] | None = None) -> None:
        self.offline: dict[Path, str] = dict(offline or {})
        self._handlers: list[FailureHandler] = []

    def subscribe(self, handler: FailureHandler) -> None:
        """Tell `handler` from now on."""
        self._handlers.append(handler)

    def report(self, log: PartitionLog, what: str, error: NativeError | OSError) -> None:
        """A call on a log's files has failed; `what` names it."""
        if log.closing or log.directory.failure is not None:
            return
        outcome = consequence(error)
        if outcome is Consequence.PARTITION and _is_gone(log.directory):
            self.fail(log.directory, "it is gone, or something else is mounted in its place")
        elif outcome is Consequence.DIRECTORY:
            self.fail(log.directory, f"{what} failed for {log}: {error}")
        elif outcome is Consequence.PARTITION:
            self.fail_log(log, f"{what} failed: {error}")
        elif error.errno != errno.EBUSY:
            logger.log(_level(log.directory, error), "%s: %s failed: %s", log, what, error)

    def fail_log(self, log: PartitionLog, why: str) -> None:
        """Put a partition out of service."""
        logger.error(
            "%s is offline until the broker is started again: %s", log, why, extra=event("offline", partition=str(log))
        )
        for handler in self._handlers:
            handler.on_log_failed(log)

    def report_directory(self, directory: LogDirectory, what: str, error: OSError) -> None:
        """A call on the files of a log dir that are no logs has failed."""
        outcome = consequence(error)
        if outcome is Consequence.DIRECTORY or (outcome is Consequence.PARTITION and _is_gone(directory)):
            self.fail(directory, f"{what} failed: {error}")
        elif directory.failure is None:
            logger.log(_level(directory, error), "log dir %s: %s failed: %s", directory.path, what, error)

    def fail(self, directory: LogDirectory, why: str) -> None:
        """Put a log dir out of service."""
        if directory.failure is not None:
            return
        directory.failure = self.offline[directory.path] = why
        logger.error(
            "log dir %s failed, and what lies there is offline until the broker is started again: %s",
            directory.path,
            why,
            extra=event("offline", directory=str(directory.path)),
        )
        for handler in self._handlers:
            handler.on_directory_failed(directory)


def _level(directory: LogDirectory, error: NativeError | OSError) -> int:
    """That a disk is full has been said once, when it went below its reserve."""
    return logging.DEBUG if directory.space.is_low and is_full(error) else logging.ERROR


def _is_gone(directory: LogDirectory) -> bool:
    """One stat, which takes as long as any look at the name of a mounted file system."""
    try:
        found = os.stat(directory.path)
    except OSError:
        return True
    return directory.identity is not None and (found.st_dev, found.st_ino) != directory.identity
