"""A network between a test's clients and its broker, which can be bad: a proxy on a port of its own.

An asyncio loop on a thread of its own carries the bytes; the methods of `Network` are for any other thread and return
when what they say holds. Can fail: OSError when the port is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any

_CHUNK_BYTES = 1 << 16
_CHUNKS_UNDER_WAY = 64
_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)


class Network:
    """The way to one broker for clients that use its `bootstrap_servers`; the broker's own go past it.

    Faults hold until `heal`. They outlive restarts of the broker.
    """

    def __init__(self, port: int, broker_port: int) -> None:
        self._port = port
        self._broker_port = broker_port
        self._delay_seconds = 0.0
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pybroker-network", daemon=True)
        self._thread.start()
        self._do(self._listen())

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of this way to the broker; whoever comes by it is told of no other."""
        return f"127.0.0.1:{self._port}"

    @property
    def connection_count(self) -> int:
        """Connections that clients have open through it."""
        return len(self._connections)

    def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED), as a host does where nobody listens. Those that are there go on."""
        self._do(self._refuse())

    def drop(self) -> None:
        """Reset all connections (ECONNRESET). Clients may connect again at once: `refuse` before it cuts them off."""
        self._do(self._drop())

    def delay(self, seconds: float) -> None:
        """Let all bytes arrive so much later, each way; connections go on."""
        self._delay_seconds = seconds

    def heal(self) -> None:
        """As a network should be: connections are accepted, nothing is late."""
        self._delay_seconds = 0.0
        self._do(self._listen())

    def close(self) -> None:
        """Refuse and drop for good."""
        if self._loop.is_closed():
            return
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # ---- on the loop ------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _drop(self) -> None:
        for writers in list(self._connections.items()):
            for writer in writers:
                _reset(writer)

    async def _close(self) -> None:
        await self._refuse()
        await self._drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection, until one side ends it."""
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        except OSError:
            # Nobody is there: that is what the client gets to see.
            _reset(writer)
            return
        self._connections[writer] = broker_writer
        ways = [
            asyncio.ensure_future(self._pump(reader, broker_writer)),
            asyncio.ensure_future(self._pump(broker_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._connections[writer]
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for each in (writer, broker_writer):
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_UNDER_WAY)
        arriving = asyncio.ensure_future(self._arrive(under_way, writer))
        try:
            # A side that resets its connection has ended it.
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(_CHUNK_BYTES):
                    await under_way.put((self._loop.time() + self._delay_seconds, data))
            # Bytes sent before the end arrive before it.
            await under_way.put((self._loop.time() + self._delay_seconds, b""))
            await arriving
        finally:
            arriving.cancel()

    async def _arrive(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        # The receiver is gone.
        with contextlib.suppress(ConnectionError):
            while True:
                due, data = await under_way.get()
                await asyncio.sleep(max(due - self._loop.time(), 0.0))
                if not data:
                    return
                writer.write(data)
                await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    # A connection that has ended by itself is not there to be reset.
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT_AT_ALL)
    writer.transport.abort()
