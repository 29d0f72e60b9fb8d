"""`QuorumConnection`: one connection to one controller, or to another broker; single requests, each answered before the
next is sent.

Versions are agreed on with ApiVersions when the connection is made. Fails with OSError (a timeout is TimeoutError) for
the network, and with ProtocolError for bytes that are no answer; the connection is of no use then.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Self

import pybroker
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, ProtocolError, code_name

Address = tuple[str, int]
#: Versions of APIs: key, lowest and highest version.
VersionRanges = tuple[tuple[int, int, int], ...]

_LENGTH = struct.Struct(">i")
#: Metadata is fetched in parts of a few MiB at the most; anything much longer is no controller's answer.
_MAX_RESPONSE_BYTES = 256 << 20
#: How an answer to bytes begins that are no TLS.
_TLS_ALERT = b"\x15\x03"
#: Every KRaft controller knows it.
_API_VERSIONS = 3


class QuorumConnection:
    """Made by `open`. `address` is where it leads to."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}

    @classmethod
    async def open(cls, address: Address, client_id: str, timeout_s: float) -> Self:
        """Connect, and learn what the controller serves."""
        async with asyncio.timeout(timeout_s):
            try:
                reader, writer = await asyncio.open_connection(*address)
            except (OverflowError, ValueError) as error:
                # A controller may name any as the leader's.
                raise ProtocolError(f"{address[0]}:{address[1]} is no address: {error}") from error
            connection = cls(address, reader, writer, client_id)
            try:
                await connection._agree()
            except BaseException:
                connection.close()
                raise
        return connection

    async def _agree(self) -> None:
        request = m.ApiVersionsRequest(
            client_software_name="pybroker", client_software_version=pybroker.__version__.replace("+", "-")
        )
        answer = await self._call(request, _API_VERSIONS)
        if answer.error_code != ErrorCode.NONE:
            raise ProtocolError(f"ApiVersions was answered with {code_name(answer.error_code)}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    @property
    def is_open(self) -> bool:
        """Neither side is known to have closed it."""
        return not self._writer.is_closing() and not self._reader.at_eof()

    def served(self, api_key: int) -> tuple[int, int] | None:
        """The lowest and highest version of an API that the other side serves; None: it does not serve it."""
        return self._versions.get(api_key)

    @property
    def ranges(self) -> VersionRanges:
        """All that the other side serves."""
        return tuple((key, low, high) for key, (low, high) in sorted(self._versions.items()))

    def version_of(self, request: m.Message) -> int:
        """The highest version that both sides know. ProtocolError when there is none."""
        api = m.apis()[request.API_KEY or 0]
        lowest, highest = self._versions.get(api.api_key, (0, -1))
        version = min(api.max_version, highest)
        if version < max(api.min_version, lowest):
            host, port = self.address
            raise ProtocolError(f"{host}:{port} does not serve {api.name} in a version that this broker knows")
        return version

    async def call(self, request: m.Message, timeout_s: float) -> Any:
        """The decoded answer. One call at a time; one that fails or is cancelled closes the connection."""
        version = self.version_of(request)
        async with asyncio.timeout(timeout_s):
            try:
                return await self._call(request, version)
            except BaseException:
                # Bytes still to come would be taken for the answer to the next request.
                self.close()
                raise

    @property
    def peer(self) -> Address | None:
        """Where it leads to, in digits; None when it broke before that could be asked."""
        name = self._writer.get_extra_info("peername")
        return None if name is None else (name[0], name[1])

    def frame(self, request: m.Message) -> bytes:
        """The request as it would be sent, with its length before it, for somebody who does not look at the answer."""
        return self._frame(request, self.version_of(request), 0)

    def _frame(self, request: m.Message, version: int, correlation_id: int) -> bytes:
        api_key = request.API_KEY
        assert api_key is not None
        header = m.RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        frame = header.encode(m.request_header_version(api_key, version)) + request.encode(version)
        return _LENGTH.pack(len(frame)) + frame

    async def _call(self, request: m.Message, version: int) -> Any:
        api_key = request.API_KEY
        assert api_key is not None
        self._correlation_id += 1
        self._writer.write(self._frame(request, version, self._correlation_id))
        data = await self._read_frame()
        head, position = m.ResponseHeader.decode(m.response_header_version(api_key, version), data)
        if head.correlation_id != self._correlation_id:
            raise ProtocolError(f"the answer is to request {head.correlation_id}, not to {self._correlation_id}")
        response, end = m.response_class(api_key).decode(version, data, position)
        if end != len(data):
            raise ProtocolError(f"{len(data) - end} bytes after the response")
        return response

    async def _read_frame(self) -> bytes:
        try:
            head = await self._reader.readexactly(_LENGTH.size)
            if head.startswith(_TLS_ALERT):
                raise ProtocolError("it speaks TLS, and listeners of PLAINTEXT are the ones that can be joined")
            (size_bytes,) = _LENGTH.unpack(head)
            if not 0 <= size_bytes <= _MAX_RESPONSE_BYTES:
                raise ProtocolError(f"an answer of {size_bytes} bytes: whoever listens there is no Kafka controller")
            return await self._reader.readexactly(size_bytes)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the controller closed the connection") from error

    def close(self) -> None:
        """Close it; harmless when repeated."""
        self._writer.close()
