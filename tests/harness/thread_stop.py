"""Stops one thread of another process, as a defect that makes it wait for ever would, and lets it go on.

By ptrace(2), so the process has to be a child, or this one privileged. What can fail: `OSError` where that is
forbidden, LookupError when no thread has that name.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_WAIT_FOR_ANY_CHILD = 0x40000000  # __WALL: threads too


def thread_id(process_id: int, name: str) -> int:
    """The thread of that name."""
    for task in Path(f"/proc/{process_id}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise LookupError(f"process {process_id} has no thread {name}")


@contextmanager
def stopped_thread(thread: int) -> Iterator[Callable[[], bool]]:
    """Within it the thread does nothing. The function says whether it has been killed; unless it is asked, nobody else
    is told that its process has ended. All by the same thread of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    _ptrace(libc, _PTRACE_SEIZE, thread)
    ended = False

    def has_ended() -> bool:
        nonlocal ended
        if not ended:
            found, status = os.waitpid(thread, _WAIT_FOR_ANY_CHILD | os.WNOHANG)
            ended = found == thread and not os.WIFSTOPPED(status)
        return ended

    try:
        _ptrace(libc, _PTRACE_INTERRUPT, thread)
        os.waitpid(thread, _WAIT_FOR_ANY_CHILD)
        yield has_ended
    finally:
        # Of a thread that has been killed meanwhile there is nothing to let go.
        libc.ptrace(_PTRACE_DETACH, thread, None, None)


def _ptrace(libc: ctypes.CDLL, request: int, thread: int) -> None:
    if libc.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace of thread {thread}")
