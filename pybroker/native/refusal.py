"""`NativeRefusal`: the data plane's answer for a partition that is assigned to this broker and cannot be used."""

from __future__ import annotations

from typing import Any

from pybroker.native.bindings import check, ffi, lib
from pybroker.native.broker import NativeBroker


class NativeRefusal:
    """Clients that produce to the partition or fetch from it are told a Kafka error code, from now until `close`, or
    until a `NativePartition` of the same name leads."""

    __slots__ = ("_handle",)

    def __init__(self, broker: NativeBroker, topic: str, topic_id: bytes, partition: int, error: int) -> None:
        """Takes the place of the partition that is served under that name. NativeError: another topic has it."""
        assert len(topic_id) == 16
        out = ffi.new("pb_partition **")
        kept = (ffi.new("char[]", topic.encode()), ffi.from_buffer(topic_id))
        check(lib.pb_partition_refuse(broker.handle, *kept, partition, error, out))
        self._handle: Any = out[0]

    def close(self) -> None:
        """End it. Once."""
        handle, self._handle = self._handle, ffi.NULL
        check(lib.pb_partition_close(handle, False, ffi.NULL))
