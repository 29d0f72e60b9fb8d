"""`QuorumChannel`: a request that finds the active controller, over a connection of its own. On the asyncio loop.

One request at a time, so what must not wait behind others has a channel of its own. A request whose connection breaks,
or whose controller is replaced meanwhile, is sent again to the new leader. The controllers tell a repetition from a
first attempt where it matters (broker epoch, partition epoch), as they must for Kafka's brokers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, ProtocolError
from pybroker.quorum.connection import Address, QuorumConnection, VersionRanges
from pybroker.quorum.errors import QuorumUnavailable
from pybroker.quorum.leader import Leader, LeaderFinder

_RETRY_INTERVAL_S = 0.05
_CONNECT_TIMEOUT_S = 5.0


class QuorumChannel:
    """`close` ends it. `client_id` is what controllers see in their logs."""

    def __init__(self, finder: LeaderFinder, client_id: str, request_timeout_s: float) -> None:
        """`request_timeout_s` bounds the wait for one answer (controller.socket.timeout.ms)."""
        self._finder = finder
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._connection: QuorumConnection | None = None
        self._connected_to: Leader | None = None
        #: The versions of the controller that was connected to last; None before the first.
        self.ranges: VersionRanges | None = None
        self._lock = asyncio.Lock()

    async def call(self, request: m.Message, timeout_s: float) -> Any:
        """The active controller's answer. QuorumUnavailable when `timeout_s` has passed without any; in a task."""
        trouble: Exception | None = None
        try:
            async with asyncio.timeout(timeout_s), self._lock:
                while True:
                    leader = await self._finder.known()
                    try:
                        answer = await self._ask(leader, request)
                    except (OSError, ProtocolError) as error:
                        trouble = error
                    else:
                        if answer is not None and getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                            return answer
                        trouble = None
                    await asyncio.sleep(_RETRY_INTERVAL_S)
        except TimeoutError:
            name = m.apis()[request.API_KEY or 0].name
            why = f": {trouble}" if trouble is not None else ""
            raise QuorumUnavailable(f"no controller has answered {name} in {timeout_s:.0f} s{why}") from trouble

    async def _ask(self, leader: Leader, request: m.Message) -> Any | None:
        """The answer; None when another controller leads before there is one."""
        asking = asyncio.ensure_future(self._call(leader, request))
        replaced = asyncio.ensure_future(self._finder.replaced(leader))
        try:
            await asyncio.wait([asking, replaced], return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            for each in (asking, replaced):
                each.cancel()
            await asyncio.gather(asking, replaced, return_exceptions=True)

    async def _call(self, leader: Leader, request: m.Message) -> Any:
        if self._connection is None or self._connected_to != leader:
            self._disconnect()
            self._connection = await QuorumConnection.open(leader.address, self._client_id, _CONNECT_TIMEOUT_S)
            self._connected_to = leader
            self.ranges = self._connection.ranges
        try:
            return await self._connection.call(request, self._request_timeout_s)
        except BaseException:
            self._disconnect()
            raise

    def frame(self, request: m.Message) -> tuple[Address, bytes] | None:
        """Where requests go at the moment, in digits, and `request` as it would be sent there; None without a
        connection."""
        connection = self._connection
        peer = None if connection is None else connection.peer
        return None if connection is None or peer is None else (peer, connection.frame(request))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the connection; a call under way fails when its time is over."""
        self._disconnect()
