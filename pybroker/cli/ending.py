"""SIGTERM and SIGHUP end a command as Ctrl-C does: what it made is removed, and its children end.

Python raises KeyboardInterrupt for SIGINT alone, and dies of the other two on the spot. Main thread.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_EXIT_BY_SIGNAL = 128


class Ended(KeyboardInterrupt):
    """A signal asks the command to end. Whatever handles Ctrl-C handles this too."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise `Ended` for the first of these signals, and end with the status of a program that died of it. One that is
    ignored, as by nohup, stays ignored. More of them do not disturb who cleans up."""
    received: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise Ended(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        if received:
            sys.exit(_EXIT_BY_SIGNAL + received[0])
