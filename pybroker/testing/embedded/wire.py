"""Messages between a test's process, its fork server and its brokers: JSON objects, one per packet of a Unix socket."""

from __future__ import annotations

import array
import json
import socket
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

_MAX_BYTES = 1 << 17
_MAX_DESCRIPTORS = 4


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends; a packet is read whole or not at all."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Fails with OSError when nobody reads the other end any more."""
    data = json.dumps(message).encode()
    if descriptors:
        socket.send_fds(end, [data], array.array("i", descriptors))
    else:
        end.send(data)


def receive(end: socket.socket) -> tuple[Message, list[int]] | None:
    """A message and the descriptors that came with it, which the caller owns; None when the other end is closed.
    TimeoutError by the socket's own time-out."""
    try:
        data, descriptors, _, _ = socket.recv_fds(end, _MAX_BYTES, _MAX_DESCRIPTORS)
    except ConnectionError:
        return None
    if not data:
        return None
    message: Message = json.loads(data)
    return message, list(descriptors)
