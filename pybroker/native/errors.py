"""The one exception that a failed call into the data plane becomes."""

from __future__ import annotations

import errno
import os


class NativeError(Exception):
    """A call into the data plane failed.

    `code` is positive for an error code of Kafka's protocol and a negative errno otherwise; `text` is for people. Which
    exception a Kafka error code becomes further up is not decided here: this package knows nothing of the protocol.
    """

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or describe(code))
        self.code = code
        self.text = text or describe(code)

    @property
    def errno(self) -> int | None:
        """The errno of a failed system call; None when `code` is Kafka's."""
        return -self.code if self.code < 0 else None


class SyncFailed(NativeError):
    """A sync failed: nobody knows what of the synced bytes is on the disk, and no later sync will tell."""


class CloseUnfinished(NativeError):
    """A log was closed with all written batches in its file or its tail ring, but not with all files derived from them.
    Nothing is lost, and the next start has to check the log."""


def describe(code: int) -> str:
    """Words for a code that came without."""
    if code == -errno.EMEDIUMTYPE:
        return "a pipe, socket or device lies where a regular file has to be"  # as in csrc/base/error.c
    return f"Kafka error code {code}" if code > 0 else os.strerror(-code)
