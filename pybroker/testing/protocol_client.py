"""A client that sends single requests of any API and version: for tests that look at what a broker answers exactly.

Blocking, one request at a time, on one connection. Fails with OSError; a connection the broker closed is
ConnectionError.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from pybroker.protocol import messages as m

_LENGTH = struct.Struct(">i")

#: The last version of Fetch that names topics; later ones have their ids.
FETCH_VERSION = 12


def fetch_request(
    topic: str, offset: int, *, partition: int = 0, isolation_level: int = 0, max_bytes: int = 1 << 20, wait_ms: int = 0
) -> m.FetchRequest:
    """Asks one partition, and is answered at once, maybe with nothing, or when something has come in `wait_ms`."""
    wanted = m.FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return m.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms > 0 else 0,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
    )


class ProtocolClient:
    """A connection to `port` on loopback; a context manager."""

    def __init__(self, port: int, *, client_id: str = "protocol-client", timeout_seconds: float = 30.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_seconds)
        self._client_id = client_id
        self._correlation_id = 0

    def call(self, request: m.Message, version: int) -> Any:
        """The decoded response. AssertionError unless it is the answer to this request, to its last byte."""
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
        data = self._read(_LENGTH.unpack(self._read(_LENGTH.size))[0])
        head, position = m.ResponseHeader.decode(m.response_header_version(api_key, version), data)
        assert head.correlation_id == self._correlation_id
        response, end = m.response_class(api_key).decode(version, data, position)
        assert end == len(data), f"{len(data) - end} bytes after the response"
        return response

    def fetch(self, topic: str, offset: int, **wanted: int) -> m.FetchResponse.PartitionData:
        """The partition's row of the answer to a `fetch_request`."""
        (response,) = self.call(fetch_request(topic, offset, **wanted), FETCH_VERSION).responses
        row: m.FetchResponse.PartitionData = response.partitions[0]
        return row

    def _read(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            part = self._socket.recv(size_bytes - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> ProtocolClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
