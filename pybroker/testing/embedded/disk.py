"""The disk of a test broker, which can fail and be slow. A thread of the test's process decides the fate of each write
and sync of the broker.

The broker hands these calls over from the first fault on (`pybroker.testing.seccomp`), which no production code knows
of. Its writes of metadata are left alone. Can fail: `BrokerFailed` where the broker is stopped, or the kernel or a
container forbids it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import select
import struct
import threading
from collections.abc import Callable

from pybroker.testing.seccomp import call_number

SYNCS = ("fsync", "fdatasync", "syncfs")
WRITES = ("pwrite64", "pwritev", "pwritev2")

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
#: struct seccomp_notif up to the first argument of the call, and struct seccomp_notif_resp (linux/seccomp.h).
_NOTIFICATION = struct.Struct("=QIIiIQQ")
_NOTIFICATION_BYTES = 80
_RESPONSE = struct.Struct("=QqiI")
_GO_ON = 1
_METADATA = "/__cluster_metadata-0/"
#: The directory of a partition, or a file in it.
_LOG = re.compile(r"/[^/]+-\d+(/[^/]*)?$")


class Disk:
    """The disk under one broker. Faults hold until `heal`, or the broker ends."""

    def __init__(self, hand_over: Callable[[], int]) -> None:
        """`hand_over` has the running broker hand its calls over, and returns the descriptor that tells of them."""
        self._hand_over = hand_over
        self._delay_seconds = 0.0
        self._syncs_fail = False
        self._healed = threading.Event()
        self._end: int | None = None
        self._thread: threading.Thread | None = None
        self._sync_numbers = {call_number(each) for each in SYNCS}

    def fail_syncs(self) -> None:
        """Let every sync of records fail with EIO from now on."""
        self._watch()
        self._syncs_fail = True

    def slow(self, seconds: float) -> None:
        """Let each write and each sync of records take so much longer, one after the other."""
        self._watch()
        self._healed.clear()
        self._delay_seconds = seconds

    def heal(self) -> None:
        """As a disk should be. Log dirs that the broker has given up it takes back at its next start."""
        self._syncs_fail = False
        self._delay_seconds = 0.0
        self._healed.set()

    def forget(self) -> None:
        """The broker has ended, and with it what it handed over."""
        self.heal()
        if self._thread is not None and self._end is not None:
            os.eventfd_write(self._end, 1)
            self._thread.join()
            os.close(self._end)
            self._thread = self._end = None

    def _watch(self) -> None:
        if self._thread is None:
            listener = self._hand_over()
            self._end = os.eventfd(0, os.EFD_CLOEXEC)
            self._thread = threading.Thread(
                target=self._decide, args=(listener, self._end), name="pybroker-disk", daemon=True
            )
            self._thread.start()

    # ---- on the thread ----------------------------------------------------------------------------------------------

    def _decide(self, listener: int, end: int) -> None:
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        waiting.register(end, select.POLLIN)
        try:
            # Without POLLIN nobody is left who could call.
            while (events := dict(waiting.poll())).get(listener, 0) & select.POLLIN and end not in events:
                # The calling broker may be killed meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    self._decide_one(listener)
        finally:
            os.close(listener)

    def _decide_one(self, listener: int) -> None:
        received = bytearray(_NOTIFICATION_BYTES)
        fcntl.ioctl(listener, _RECEIVE, received)
        call_id, pid, _, number, _, _, file = _NOTIFICATION.unpack_from(received)
        error, flags = 0, _GO_ON
        if _of_records(pid, file):
            if self._delay_seconds > 0:
                self._healed.wait(self._delay_seconds)
            if self._syncs_fail and number in self._sync_numbers:
                error, flags = -errno.EIO, 0
        fcntl.ioctl(listener, _SEND, bytearray(_RESPONSE.pack(call_id, 0, error, flags)))


def _of_records(pid: int, file: int) -> bool:
    """Whether a thread's descriptor is of what a disk's failure may cost: files and directories of logs. A broker whose
    only log dir cannot take a checkpoint ends, whatever is produced, and they are written from time to time."""
    path = os.readlink(f"/proc/{pid}/fd/{file}")
    return _METADATA not in f"{path}/" and _LOG.search(path) is not None
