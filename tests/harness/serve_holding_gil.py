"""A broker whose Python can be stopped: `python -m tests.harness.serve_holding_gil serve ...`.

Like `python -m pybroker`, but SIGUSR1 makes the main thread hold the interpreter lock for PYBROKER_HOLD_GIL_MS
milliseconds, as a runaway handler or a long garbage collection would; SIGUSR2 makes it wait until there is a file
PYBROKER_BLOCK_UNTIL, so that the control loop stands still and other threads go on. For tests only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from types import FrameType

from pybroker.cli.main import main

_US_PER_MS = 1000
# PyDLL, unlike CDLL, does not release the lock around the call.
_usleep = ctypes.PyDLL(None).usleep


def _hold(_signal: int, _frame: FrameType | None) -> None:
    _usleep(int(os.environ["PYBROKER_HOLD_GIL_MS"]) * _US_PER_MS)


def _block(_signal: int, _frame: FrameType | None) -> None:
    print("the control loop stands still", flush=True)
    while not os.path.exists(os.environ["PYBROKER_BLOCK_UNTIL"]):
        time.sleep(0.01)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _hold)
    signal.signal(signal.SIGUSR2, _block)
    main()
