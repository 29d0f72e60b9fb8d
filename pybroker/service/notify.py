"""The messages of a service to its service manager: datagrams of `NAME=value` lines to the socket in NOTIFY_SOCKET.

The protocol of sd_notify(3); podman and s6 speak it as well. Any thread may tell. A message that cannot be sent is
logged, the first time, and the broker goes on: nobody is told of it then, and the manager's time-outs decide.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping

logger = logging.getLogger(__name__)

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE = "WATCHDOG_USEC"
WATCHDOG_PROCESS_VARIABLE = "WATCHDOG_PID"
_SEND_TIMEOUT_S = 2.0
_US_PER_S = 1_000_000
_NS_PER_US = 1_000


class ServiceManager:
    """The starter of this process, if it wants to be told; `listens` says so. Else every message goes nowhere."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._status: str | None = None
        self._has_failed = False
        self._socket = self._connect(environment.get(SOCKET_VARIABLE, ""))

    @property
    def listens(self) -> bool:
        """Whether there is somebody to tell."""
        return self._socket is not None

    @property
    def watchdog_s(self) -> float | None:
        """How long the manager waits between two signs of life; None: it wants none of this process."""
        process = self._environment.get(WATCHDOG_PROCESS_VARIABLE, "")
        period = self._environment.get(WATCHDOG_VARIABLE, "")
        if not self.listens or not period.isdecimal() or int(period) == 0 or process not in ("", str(os.getpid())):
            return None
        return int(period) / _US_PER_S

    def _connect(self, address: str) -> socket.socket | None:
        if not address:
            return None
        if address[0] not in "/@":
            logger.warning("%s=%s is no socket that can be told: a path or @name is", SOCKET_VARIABLE, address)
            return None
        found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        found.settimeout(_SEND_TIMEOUT_S)
        try:
            # A leading @ stands for the NUL of an abstract name.
            found.connect("\0" + address[1:] if address[0] == "@" else address)
        except OSError as error:
            found.close()
            logger.warning("%s=%s cannot be told how the broker is: %s", SOCKET_VARIABLE, address, error)
            return None
        return found

    def tell_status(self, text: str) -> None:
        """One line for people. Sent when it is another one than before."""
        with self._lock:
            if text != self._status:
                self._send({"STATUS": text})
                self._status = text

    def tell_ready(self, text: str) -> None:
        """The start is over, or a reload; `text` is the status."""
        self._tell({"READY": "1"}, text)

    def tell_reloading(self, text: str) -> None:
        """A reload begins; `tell_ready` ends it."""
        # systemd tells by the time a reload that it asked for from an earlier one.
        began_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // _NS_PER_US
        self._tell({"RELOADING": "1", "MONOTONIC_USEC": str(began_us)}, text)

    def tell_stopping(self, text: str) -> None:
        """The broker closes. No sign of life is wanted from here on."""
        self._tell({"STOPPING": "1"}, text)

    def tell_alive(self) -> None:
        """A sign of life."""
        self._tell({"WATCHDOG": "1"})

    def ask_for_time(self, seconds: float) -> None:
        """Start or stop go on, and may take so long from now."""
        self._tell({"EXTEND_TIMEOUT_USEC": str(int(seconds * _US_PER_S))})

    def close(self) -> None:
        """Nothing is sent any more."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _tell(self, values: Mapping[str, str], status: str | None = None) -> None:
        with self._lock:
            if status is not None:
                values = {**values, "STATUS": status}
                self._status = status
            self._send(values)

    def _send(self, values: Mapping[str, str]) -> None:
        if self._socket is None:
            return
        # A line's end would begin another assignment.
        lines = [f"{name}={value.replace(chr(10), ' ')}" for name, value in values.items()]
        try:
            self._socket.send("\n".join(lines).encode())
        except OSError as error:
            if not self._has_failed:
                logger.warning("the service manager cannot be told %s: %s", " ".join(values), error)
            self._has_failed = True
