"""A broker whose Python can be stopped: `python -m pybroker.testing.serve_holding_gil serve ...`.

Like `python -m pybroker`, but SIGUSR1 makes the main thread hold the interpreter lock for PYBROKER_HOLD_GIL_MS
milliseconds, as a runaway handler or a long garbage collection would. For tests of the split between planes only.
"""

from __future__ import annotations

import ctypes
import os
import signal
from types import FrameType

from pybroker.cli.main import main

_US_PER_MS = 1000
# PyDLL, unlike CDLL, does not release the lock around the call.
_usleep = ctypes.PyDLL(None).usleep


def _hold(_signal: int, _frame: FrameType | None) -> None:
    _usleep(int(os.environ["PYBROKER_HOLD_GIL_MS"]) * _US_PER_MS)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _hold)
    main()
