"""`NativeHeartbeat`: this broker's heartbeats, given by the data plane while Python is late."""

from __future__ import annotations

from typing import Any

from pybroker.native.bindings import check, ffi, lib, new_failure
from pybroker.native.broker import NativeBroker


class NativeHeartbeat:
    """A connection to the active controller, kept for when it is needed. NativeError."""

    __slots__ = ("_handle",)

    def __init__(self, broker: NativeBroker, address: str, port: int, interval_ms: int, limit_ms: int) -> None:
        """`address` is in digits. Repeats the last feed, every `interval_ms`, when a feed is late by a quarter of that;
        but not later than `limit_ms` after the last feed."""
        digits = ffi.new("char[]", address.encode())
        values = {"address": digits, "port": port, "interval_ms": interval_ms, "limit_ms": limit_ms}
        out, failure = ffi.new("pb_heartbeat **"), new_failure()
        check(lib.pb_heartbeat_open(broker.handle, ffi.new("pb_heartbeat_options *", values), out, failure), failure)
        self._handle: Any = out[0]

    def feed(self, frame: bytes) -> None:
        """The control loop is alive, and `frame` is its last heartbeat: length, header and body."""
        check(lib.pb_heartbeat_feed(self._handle, ffi.from_buffer(frame), len(frame)))

    @property
    def sent_count(self) -> int:
        """How often the data plane has spoken."""
        return int(lib.pb_heartbeat_sent(self._handle))

    def close(self) -> None:
        """Send nothing any more. Once, before the broker is closed."""
        handle, self._handle = self._handle, ffi.NULL
        lib.pb_heartbeat_close(handle)
