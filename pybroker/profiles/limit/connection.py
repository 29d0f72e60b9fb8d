"""`Connection`: single requests to a broker, one at a time, blocking.

Fails with OSError, or `RefusedError` when an answer is an error code of Kafka's or does not come.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

_LENGTH = struct.Struct(">i")
_TIMEOUT_SECONDS = 30.0
CLIENT_ID = "pybroker-profile-limit"


class RefusedError(Exception):
    """The broker does not do what it was asked; the text says what and why."""


def frame(request: m.Message, version: int) -> bytes:
    """A request with its header, and its length in front."""
    api_key = request.API_KEY
    assert api_key is not None
    header = m.RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=1, client_id=CLIENT_ID
    )
    body = header.encode(m.request_header_version(api_key, version)) + request.encode(version)
    return _LENGTH.pack(len(body)) + body


class Connection:
    """To `host`:`port`; a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._socket = socket.create_connection((host, port), _TIMEOUT_SECONDS)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._socket.close()

    @property
    def is_local(self) -> bool:
        """Whether the broker runs on this machine: then both ends have the same address."""
        own, peer = self._socket.getsockname(), self._socket.getpeername()
        return bool(own[0] == peer[0])

    def call(self, request: m.Message, version: int) -> Any:
        """The answer."""
        self._socket.sendall(frame(request, version))
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        data = self._read(length)
        api_key = request.API_KEY
        assert api_key is not None
        _, position = m.ResponseHeader.decode(m.response_header_version(api_key, version), data)
        response, _ = m.response_class(api_key).decode(version, data, position)
        return response

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = self._socket.recv(length - len(data))
            if not part:
                raise RefusedError(f"{self.host}:{self.port} closes the connection; is it a listener without security?")
            data += part
        return bytes(data)


def expect(error_code: int, what: str) -> None:
    """RefusedError unless the code is 0."""
    if error_code != 0:
        try:
            name = ErrorCode(error_code).name
        except ValueError:
            name = f"error code {error_code}"
        raise RefusedError(f"{what}: {name}")
