"""`StandIn`: has the data plane give this broker's heartbeats while the control loop stands still. On that loop.

A loop that is busy for some seconds must not get the broker fenced, and one that is dead must. So each heartbeat that
was answered is handed to the data plane, which sends it again when the next is late, for up to two thirds of a session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from pybroker.native.errors import NativeError
from pybroker.protocol import messages as m
from pybroker.quorum.channel import QuorumChannel
from pybroker.quorum.connection import Address

logger = logging.getLogger(__name__)


class Heartbeat(Protocol):
    """See `pybroker.native.heartbeat.NativeHeartbeat`."""

    def feed(self, frame: bytes) -> None: ...

    def close(self) -> None: ...


#: Takes address, port, interval and limit in ms.
OpenHeartbeat = Callable[[str, int, int, int], Heartbeat]


class StandIn:
    """`take` every heartbeat that was answered; `close` before the data plane stops."""

    def __init__(
        self, channel: QuorumChannel, open_heartbeat: OpenHeartbeat, interval_s: float, limit_s: float
    ) -> None:
        """`channel` is the one that heartbeats go by."""
        self._channel = channel
        self._open = open_heartbeat
        self._interval_ms = int(interval_s * 1000)
        self._limit_ms = int(limit_s * 1000)
        self._heartbeat: Heartbeat | None = None
        self._address: Address | None = None

    def take(self, request: m.BrokerHeartbeatRequest) -> None:
        """The control loop is alive, and `request` is what it has just said."""
        found = self._channel.frame(request)
        if found is None:
            return
        address, frame = found
        try:
            if address != self._address:
                self.close()
                self._heartbeat = self._open(*address, self._interval_ms, self._limit_ms)
                self._address = address
            assert self._heartbeat is not None
            self._heartbeat.feed(frame)
        except NativeError as error:
            logger.warning("nobody gives heartbeats if the control loop stands still: %s", error)

    def close(self) -> None:
        """From now on nobody stands in."""
        if self._heartbeat is not None:
            self._heartbeat.close()
        self._heartbeat, self._address = None, None
