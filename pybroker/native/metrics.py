"""The counters of the data plane, each read whole by one call, and whether its reactors turn.

Any thread, while the broker is open. A count since the start is named `..._count` or by its unit; it never goes back.
"""

from __future__ import annotations

import errno
import struct
from typing import Any, NamedTuple

from pybroker.native.bindings import check, ffi, lib
from pybroker.native.broker import NativeBroker
from pybroker.values import Value

_MAX_APIS = 128
_EDGES = 30
STAGES = ("queue", "local", "remote", "send", "total")
"""The parts of a request's time, by pb_stage."""


class BrokerStats(NamedTuple):
    """Counters since start, and what there is now; the fields of pb_broker_stats, which tells about each."""

    connections: int
    connections_accepted: int
    connections_refused: int
    bytes_in: int
    bytes_out: int
    requests: int
    produce_requests: int
    fetch_requests: int
    bad_requests: int
    appended_batches: int
    appended_records: int
    appended_bytes: int
    failed_produces: int
    writes: int
    written_bytes: int
    turns: int
    rolls: int
    slow_requests: int
    throttled: int
    quota_throttled: int
    starved_connections: int
    slow_closed: int
    buffer_bytes: int
    buffer_budget_bytes: int
    delayed_fetches: int
    python_requests: int
    fetch_sessions: int
    cold_reads: int
    cold_read_bytes: int
    cold_dropped_bytes: int
    empty_fetches: int
    large_batches: int
    large_batch_bytes: int
    large_batches_now: int


class Distribution(Value):
    """How values are distributed: `below[i]` of them are less than 2**i."""

    count: int
    sum: int
    below: tuple[int, ...]


class Distributions(NamedTuple):
    """The fields of pb_broker_distributions: times in microseconds, and appends."""

    turn_us: Distribution
    doorbell_us: Distribution
    file_sync_us: Distribution
    shared_sync_us: Distribution
    filesystem_sync_us: Distribution
    commit_appends: Distribution


class Ping(NamedTuple):
    """`stuck_reactor`: the number of one that did not answer within `latency_us`; None: all did."""

    latency_us: int
    stuck_reactor: int | None


_STATS = struct.Struct(f"<{len(BrokerStats._fields)}q")
_DISTRIBUTION = struct.Struct(f"<{2 + _EDGES}q")
_TIMES_BYTES = 8 + len(STAGES) * _DISTRIBUTION.size

if (
    ffi.sizeof("pb_broker_stats") != _STATS.size
    or ffi.sizeof("pb_broker_distributions") != len(Distributions._fields) * _DISTRIBUTION.size
    or ffi.sizeof("pb_request_times") != _TIMES_BYTES
):
    raise ImportError("pb_broker_stats, pb_broker_distributions or pb_request_times has another layout than here")


def read_stats(broker: NativeBroker) -> BrokerStats:
    """Counters, summed over the reactors."""
    out = ffi.new("pb_broker_stats *")
    lib.pb_broker_stats_read(broker.handle, out)
    return BrokerStats._make(_STATS.unpack(ffi.buffer(out)))


def _distributions(data: Any, count: int, start: int = 0) -> list[Distribution]:
    rows = [_DISTRIBUTION.unpack_from(data, start + index * _DISTRIBUTION.size) for index in range(count)]
    return [Distribution(row[0], row[1], row[2:]) for row in rows]


def read_distributions(broker: NativeBroker) -> Distributions:
    """Times of turns, of the doorbell and of syncs."""
    out = ffi.new("pb_broker_distributions *")
    lib.pb_broker_distributions_read(broker.handle, out)
    return Distributions(*_distributions(ffi.buffer(out), len(Distributions._fields)))


def read_request_times(broker: NativeBroker) -> dict[int, list[Distribution]]:
    """The times of each API that has been asked for, by key, in microseconds, by `STAGES`."""
    out = ffi.new("pb_request_times[]", _MAX_APIS)
    count = lib.pb_broker_request_times(broker.handle, out, _MAX_APIS)
    data = ffi.buffer(out)
    return {int(out[row].api_key): _distributions(data, len(STAGES), row * _TIMES_BYTES + 8) for row in range(count)}


def ping(broker: NativeBroker, timeout_ms: int) -> Ping:
    """Let every reactor show that it turns. Blocking. NativeError when they do not run."""
    latency_us, stuck = ffi.new("int64_t *"), ffi.new("int32_t *")
    code = lib.pb_broker_ping(broker.handle, timeout_ms, latency_us, stuck)
    if code not in (0, -errno.ETIMEDOUT):
        check(code, what="asking the reactors")
    return Ping(int(latency_us[0]), int(stuck[0]) if code else None)
