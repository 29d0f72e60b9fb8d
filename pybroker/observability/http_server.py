"""A small HTTP server for metrics and health, with a thread and an asyncio loop of its own.

It answers when the broker's loop does not, and what it computes does not hold that loop up. GET and HEAD only, one
request to a connection, bounded in bytes, time and number. Handlers run on its loop. Failures: binding (OSError).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from pybroker.values import Value

logger = logging.getLogger(__name__)

_MAX_HEAD_BYTES = 16 << 10
_REQUEST_TIMEOUT_S = 10.0
_MAX_CONNECTIONS = 32
_JOIN_TIMEOUT_S = 10.0


class Response(Value):
    """`status` is HTTP's."""

    status: int
    content_type: str
    body: bytes


def text_response(status: int, text: str) -> Response:
    """A plain answer for people."""
    return Response(status, "text/plain; charset=utf-8", text.encode() + b"\n")


Handler = Callable[[Mapping[str, str]], Awaitable[Response]]
"""Takes the query's parameters."""


class HttpServer:
    """`start` binds and serves, `stop` ends it. `port` is the one that was bound, `connection_count` who is served."""

    def __init__(self, host: str, port: int, routes: Mapping[str, Handler]) -> None:
        """`routes` by path."""
        self._routes = routes
        self._socket = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=_MAX_CONNECTIONS
        )
        self.port: int = self._socket.getsockname()[1]
        self.connection_count = 0
        #: Those whose request has not come yet, the oldest first.
        self._silent: dict[asyncio.StreamWriter, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pb-observe", daemon=True)

    def start(self) -> None:
        """Serve, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End it. Blocking, for as long as an answer takes at most."""
        if not self._thread.is_alive():
            self._socket.close()
            return
        self._started.wait(_JOIN_TIMEOUT_S)
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = await asyncio.start_server(self._on_connection, sock=self._socket, limit=_MAX_HEAD_BYTES)
        self._started.set()
        await self._stopping.wait()
        server.close()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.connection_count >= _MAX_CONNECTIONS and not self._make_room():
            writer.transport.abort()
            return
        self.connection_count += 1
        self._silent[writer] = None
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                self._silent.pop(writer, None)
                await self._answer(head, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            logger.debug("a connection to the metrics endpoint ended early: %s", error)
        finally:
            self.connection_count -= 1
            self._silent.pop(writer, None)
            # To close it would keep what a client does not read, and its socket, for as long as the client likes.
            writer.transport.abort()

    def _make_room(self) -> bool:
        """End the connection that has asked for nothing for longest: whoever holds them all must not keep a probe from
        asking whether the broker is alive."""
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return False
        del self._silent[oldest]
        oldest.transport.abort()
        return True

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        line = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        response = await self._respond(line)
        start = (
            f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
            f"Content-Type: {response.content_type}\r\n"
            f"Content-Length: {len(response.body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        writer.write(start.encode() + (b"" if line[0] == "HEAD" else response.body))
        await writer.drain()

    async def _respond(self, line: list[str]) -> Response:
        if len(line) != 3 or not line[2].startswith("HTTP/1."):
            return text_response(400, "this is no HTTP/1.1 request")
        if line[0] not in ("GET", "HEAD"):
            return text_response(405, "only GET and HEAD are answered")
        try:
            target = urlsplit(line[1])
        except ValueError:
            return text_response(400, "the address asked for is none")
        handler = self._routes.get(target.path)
        if handler is None:
            return text_response(404, f"there is nothing here; paths: {', '.join(self._routes)}")
        try:
            return await handler(dict(parse_qsl(target.query)))
        except Exception:  # a defect in one answer; others are still wanted
            logger.exception("%s could not be answered", target.path)
            return text_response(500, "the answer could not be made; the broker's log says why")
