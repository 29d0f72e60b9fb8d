"""Ports of loopback for what is started next. Any thread."""

from __future__ import annotations

import os
import socket
from collections import deque

#: Keeps the ports that were drawn last. Their children listen on them by the time they drop out.
_RESERVATION_COUNT = 64
_reservations: deque[int] = deque()


def free_port() -> int:
    """A loopback TCP port nobody listens on now.

    The port is below the kernel's ephemeral range, so no outgoing connection takes it before the child binds it. No
    other caller on this machine gets it until some tens more were drawn.
    """
    while True:
        port = 12_000 + int.from_bytes(os.urandom(2), "big") % 20_000
        if not _reserve(port):
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _reserve(port: int) -> bool:
    """Whether nobody else has it: its name as an abstract address of a Unix socket, which ends with this process."""
    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        reservation.bind(f"\0pybroker-port-{port}")
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation.detach())  # nobody closes the last ones
    if len(_reservations) > _RESERVATION_COUNT:
        os.close(_reservations.popleft())
    return True
