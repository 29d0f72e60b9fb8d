"""`NativeFetcher`: what partitions that follow one leader are fetched with, and how far they have come."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from pybroker.native.bindings import check, ffi, lib, new_failure
from pybroker.native.broker import NativeBroker
from pybroker.native.partition import NativePartition
from pybroker.values import Value

FOLLOWER_RESTARTED: int = lib.PB_FOLLOWER_RESTARTED
FOLLOWER_CUT: int = lib.PB_FOLLOWER_CUT
FOLLOWER_CORRUPT: int = lib.PB_FOLLOWER_CORRUPT
FOLLOWER_STOPPED: int = lib.PB_FOLLOWER_STOPPED
FOLLOWER_CHECKPOINT: int = lib.PB_FOLLOWER_CHECKPOINT
"""What an EVENT_FOLLOWER is about: its `error`; `offset` is where."""

FOLLOWER_IDLE: int = lib.PB_FOLLOWER_IDLE
FOLLOWER_FETCHING: int = lib.PB_FOLLOWER_FETCHING
FOLLOWER_WAITING: int = lib.PB_FOLLOWER_WAITING
FOLLOWER_STANDSTILL: int = lib.PB_FOLLOWER_STANDSTILL
"""`PartitionFollowing.state`."""

_STATS = struct.Struct("<9q")
_FOLLOWING = struct.Struct("<q2i")
for _name, _layout in {"pb_fetcher_stats": _STATS, "pb_partition_following": _FOLLOWING}.items():
    if ffi.sizeof(_name) != _layout.size:
        raise ImportError(f"{_name} has {ffi.sizeof(_name)} bytes, this package knows {_layout.size}")


class FetcherOptions(Value):
    """A leader and how to fetch from it; the fields of pb_fetcher_options. Sizes in bytes, times in ms."""

    leader_id: int
    host: str
    port: int
    replica_id: int
    replica_epoch: int
    fetch_version: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff_ms: int
    connect_timeout_ms: int
    client_id: str


class FetcherStats(NamedTuple):
    """Counters since it was opened; `partitions` and `connected` (1 or 0) are as of now."""

    requests: int
    bytes: int
    record_bytes: int
    batches: int
    records: int
    connections: int
    failures: int
    partitions: int
    connected: int


class PartitionFollowing(NamedTuple):
    """How far a partition has come: `lag` in records behind the leader's high watermark as it said last, -1 when it has
    not; `leader_epoch` -1 when it does not follow."""

    lag: int
    leader_epoch: int
    state: int


class NativeFetcher:
    """It connects when the first partition follows with it. NativeError."""

    __slots__ = ("handle",)

    def __init__(self, broker: NativeBroker, options: FetcherOptions) -> None:
        kept = [ffi.new("char[]", options.host.encode()), ffi.new("char[]", options.client_id.encode())]
        values = options.as_dict() | {"host": kept[0], "client_id": kept[1]}
        out, failure = ffi.new("pb_fetcher **"), new_failure()
        check(lib.pb_fetcher_open(broker.handle, ffi.new("pb_fetcher_options *", values), out, failure), failure)
        self.handle: Any = out[0]

    def close(self) -> None:
        """End it, before its broker is closed; what still follows with it stands still."""
        handle, self.handle = self.handle, ffi.NULL
        lib.pb_fetcher_close(handle)

    def set_epoch(self, replica_epoch: int) -> None:
        """This broker was registered again: it connects anew and fetches with that broker epoch."""
        check(lib.pb_fetcher_set_epoch(self.handle, replica_epoch))

    @property
    def stats(self) -> FetcherStats:
        """Counters."""
        out = ffi.new("pb_fetcher_stats *")
        lib.pb_fetcher_stats_read(self.handle, out)
        return FetcherStats._make(_STATS.unpack(ffi.buffer(out)))


def partition_followings(partitions: Sequence[NativePartition]) -> list[PartitionFollowing]:
    """How far each of many partitions has come, by one call and in their order."""
    if not partitions:
        return []
    handles = ffi.new("pb_partition *[]", [each.handle for each in partitions])
    out = ffi.new("pb_partition_following[]", len(partitions))
    lib.pb_partitions_following(handles, len(partitions), out)
    return [PartitionFollowing._make(each) for each in _FOLLOWING.iter_unpack(ffi.buffer(out))]
