"""The broker's log as entries of systemd's journal, with a field for each thing a line knows.

Speaks the journal's own datagram protocol (systemd: "Native Journal Protocol"), so `journalctl PYBROKER_EVENT=roll` and
the priorities of lines work. Failures: making the handler (OSError, without a journal). A line that the journal does
not take is told by `logging` on standard error.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import struct
import sys

from pybroker.observability.event_log import event_of
from pybroker.observability.log_bounds import bounded_fields, one_line, traceback_of

SOCKET_PATH = "/run/systemd/journal/socket"
_STREAM_VARIABLE = "JOURNAL_STREAM"
_IDENTIFIER = "pybroker"


def is_standard_error() -> bool:
    """Whether what is written to standard error goes to the journal, as systemd says by device and inode."""
    device, _, inode = os.environ.get(_STREAM_VARIABLE, "").partition(":")
    if not device.isdecimal() or not inode.isdecimal():
        return False
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return (found.st_dev, found.st_ino) == (int(device), int(inode))


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """A line as fields: the journal's own, and those of an event as PYBROKER_<NAME>."""
    message = one_line(record.getMessage())
    if (exception := traceback_of(record)) is not None:
        message = f"{message}\n{exception}"
    fields = {
        "MESSAGE": message,
        "PRIORITY": _priority(record.levelno),
        "SYSLOG_IDENTIFIER": _IDENTIFIER,
        "LOGGER": record.name,
        "CODE_FILE": record.pathname,
        "CODE_LINE": str(record.lineno),
        "CODE_FUNC": record.funcName or "",
        "THREAD_NAME": record.threadName or "",
    }
    event = event_of(record)
    if event is not None:
        kind, values = event
        fields["PYBROKER_EVENT"] = kind
        fields |= {f"PYBROKER_{name.upper()}": str(value) for name, value in bounded_fields(values).items()}
    return fields


def _priority(level: int) -> str:
    """Syslog's number for a level of logging."""
    for least, priority in ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6)):
        if level >= least:
            return str(priority)
    return "7"


def encode(fields: dict[str, str]) -> bytes:
    """An entry of the protocol: `NAME=value`, or for a value of several lines its name, its length, and itself."""
    parts = []
    for name, text in fields.items():
        value = text.encode(errors="replace")
        if b"\n" in value:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n")
        else:
            parts.append(name.encode() + b"=" + value + b"\n")
    return b"".join(parts)


class JournalHandler(logging.Handler):
    """Sends each line as an entry. Any thread."""

    def __init__(self, path: str = SOCKET_PATH) -> None:
        """OSError when there is no journal."""
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        try:
            entry = encode(fields_of(record))
            self._send(entry)
        except (OSError, ValueError, TypeError):
            self.handleError(record)

    def _send(self, entry: bytes) -> None:
        try:
            self._socket.send(entry)
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
            # Larger ones are taken from a sealed file in memory.
            self._send_file(entry)

    def _send_file(self, entry: bytes) -> None:
        descriptor = os.memfd_create("pybroker-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(entry)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
            socket.send_fds(self._socket, [], [descriptor])
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """See logging.Handler."""
        self._socket.close()
        super().close()
