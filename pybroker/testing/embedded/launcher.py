"""The test's side of the fork server: one per process, started with its first broker. Any thread.

Can fail: `BrokerFailed` when the server does not come up or ends.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from pybroker.testing.embedded import wire

_MODULE = "pybroker.testing.embedded.fork_server"
_START_TIMEOUT_SECONDS = 60.0
_ANSWER_MARGIN_SECONDS = 30.0
_lock = threading.Lock()
_shared: Launcher | None = None


class BrokerFailed(RuntimeError):
    """A test broker did not start, ended by itself, or could not do what was asked of it."""


class Launcher:
    """A fork server as a child process."""

    def __init__(self) -> None:
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the server runs
        self._control, theirs = wire.pair()
        self._control.settimeout(_START_TIMEOUT_SECONDS)
        self._root: Path | None = None
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,
            )

    @property
    def usable(self) -> bool:
        """Whether it runs, and is this process's: one that was forked off cannot share it."""
        return self._owner_pid == os.getpid() and self._process.poll() is None

    def root(self) -> Path:
        """The dir on tmpfs for this server's brokers; waits until the server is ready."""
        with self._lock:
            if self._root is None:
                self._root = Path(self._received()["root"])
            return self._root

    def start(self, properties: Mapping[str, str], ahead_ms: int, output: Path, control: socket.socket) -> int:
        """The process id of a new broker, which has `control` as its control socket and its clock ahead by so much."""
        message = {"do": "start", "properties": dict(properties), "ahead_ms": ahead_ms, "output": str(output)}
        return int(self._call(message, control)["pid"])

    def end(self, pid: int, number: signal.Signals, timeout_seconds: float) -> int:
        """Signal a broker, wait for its end (it is killed after the time-out); its exit status, -N after signal N."""
        message = {"do": "end", "pid": pid, "signal": int(number), "timeout_seconds": timeout_seconds}
        return int(self._call(message, None, timeout_seconds)["status"])

    def close(self) -> None:
        """End the server, and with it all its brokers."""
        self._control.close()
        if self._owner_pid == os.getpid():
            self._process.wait()
        self._errors.close()

    def _call(self, message: wire.Message, control: socket.socket | None, seconds: float = 0.0) -> wire.Message:
        self.root()
        with self._lock:
            self._control.settimeout(seconds + _ANSWER_MARGIN_SECONDS)
            try:
                wire.send(self._control, message, [] if control is None else [control.fileno()])
            except OSError as error:
                raise BrokerFailed(f"the process that starts brokers is gone: {self._said()}") from error
            return self._received()

    def _received(self) -> wire.Message:
        try:
            received = wire.receive(self._control)
        except TimeoutError as error:
            raise BrokerFailed("the process that starts brokers does not answer") from error
        if received is None:
            raise BrokerFailed(f"the process that starts brokers has ended: {self._said()}")
        return received[0]

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace") or "it said nothing"


def launcher() -> Launcher:
    """This process's; started when there is none that can be used."""
    global _shared
    with _lock:
        if _shared is None or not _shared.usable:
            if _shared is not None:
                _shared.close()
            _shared = Launcher()
        return _shared


def close() -> None:
    """End this process's fork server, if there is one; the next broker starts another."""
    global _shared
    with _lock:
        if _shared is not None:
            _shared.close()
            _shared = None


atexit.register(close)
