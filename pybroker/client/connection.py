"""One connection to one broker: single requests of any API and version, one at a time. Blocks.

Fails with OSError, a connection that the broker closed being ConnectionError, and with ProtocolError for bytes that are
no answer to the request.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ProtocolError

_LENGTH = struct.Struct(">i")
_MAX_RESPONSE_BYTES = 1 << 30


class Connection:
    """A context manager. `timeout_seconds` bounds each wait for the other side."""

    def __init__(self, host: str, port: int, *, client_id: str = "pybroker", timeout_seconds: float = 30.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_seconds)
        self._client_id = client_id
        self._correlation_id = 0

    def call(self, request: m.Message, version: int) -> Any:
        """The decoded response, which is used up to its last byte."""
        api_key = request.API_KEY
        assert api_key is not None
        self._correlation_id += 1
        header = m.RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        frame = header.encode(m.request_header_version(api_key, version)) + request.encode(version)
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)
        data = self._read_frame()
        head, position = m.ResponseHeader.decode(m.response_header_version(api_key, version), data)
        if head.correlation_id != self._correlation_id:
            raise ProtocolError(f"the answer is to request {head.correlation_id}, not to {self._correlation_id}")
        response, end = m.response_class(api_key).decode(version, data, position)
        if end != len(data):
            raise ProtocolError(f"{len(data) - end} bytes after the response")
        return response

    def _read_frame(self) -> bytes:
        (size_bytes,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if not 0 <= size_bytes <= _MAX_RESPONSE_BYTES:
            raise ProtocolError(
                f"an answer of {size_bytes} bytes: whoever listens there does not speak Kafka's protocol"
            )
        return self._read(size_bytes)

    def _read(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            part = self._socket.recv(min(size_bytes - len(data), 1 << 20))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
