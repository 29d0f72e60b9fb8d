"""Children that end with the process that started them, also when that is killed and can end nobody.

The kernel signals a child when the thread that started it has ended (prctl(2), PR_SET_PDEATHSIG). A child asks for that
itself, so that its parent needs no code between fork and exec. Programs that take part are told their parent's process
id by `environment`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

#: Names the process that a load ends with. The load generator reads it too.
VARIABLE = "PBLOAD_PARENT"

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def environment() -> dict[str, str]:
    """That of a child that is to end with this process."""
    return {**os.environ, VARIABLE: str(os.getpid())}


def named_parent() -> int | None:
    """The process that this one was told to end with."""
    text = os.environ.pop(VARIABLE, "")
    return int(text) if text.isdecimal() else None


def end_with(parent_pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have this process get the signal when its parent ends; at once when that has ended already. OSError."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl: {os.strerror(code)}")
    if os.getppid() != parent_pid:
        sys.exit(f"process {parent_pid}, which started this one, is gone")
