"""`NativeBroker`: Python's handle of the data plane in C: its reactors, its listeners, and its queue of events.

Owned by the daemon. Calls are made on the asyncio thread unless they say "Blocking". csrc/include/pybroker.h has the
details of each call.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pybroker.native.bindings import check, ffi, lib, new_failure
from pybroker.values import Value

EVENT_REQUEST: int = lib.PB_EVENT_REQUEST
EVENT_APPENDED: int = lib.PB_EVENT_APPENDED
EVENT_NOTICE: int = lib.PB_EVENT_NOTICE
EVENT_OFFLINE: int = lib.PB_EVENT_OFFLINE
EVENT_CAUGHT_UP: int = lib.PB_EVENT_CAUGHT_UP
EVENT_FOLLOWER: int = lib.PB_EVENT_FOLLOWER
EVENT_VERIFY: int = lib.PB_EVENT_VERIFY

OFFLINE_WRITE: int = lib.PB_OFFLINE_WRITE
OFFLINE_READ: int = lib.PB_OFFLINE_READ
OFFLINE_SYNC: int = lib.PB_OFFLINE_SYNC
"""The values of `offset` in an EVENT_OFFLINE: the operation that failed."""

NOTICE_TROUBLE: int = lib.PB_NOTICE_TROUBLE
NOTICE_SLOW_REQUEST: int = lib.PB_NOTICE_SLOW_REQUEST
NOTICE_ROLL: int = lib.PB_NOTICE_ROLL
NOTICE_THROTTLE: int = lib.PB_NOTICE_THROTTLE
"""The values of `error` in an EVENT_NOTICE: the kind of notice."""

NULL_LENGTH = 0xFFFFFFFF
"""An event's `client_id_length` when the client sent no client id."""

_EVENT = struct.Struct("<IiQqqQQIIhhiII")
_EVENTS_PER_TAKE = 256
_HOST_BYTES = 64

RawEvent = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int]
"""kind, error, handle, offset, connection_id, body, client_id, body_length, client_id_length, api_key, api_version,
correlation_id, listener, repeated: the fields of pb_event in order."""


QUOTA_SAMPLES_MAX: int = lib.PB_QUOTA_SAMPLES
"""The largest `sample_count` of `NativeBroker.set_client_quotas`."""


class ByteRates(NamedTuple):
    """The bytes per second that a client may produce and fetch; 0: no bound. With `…_shared` the bound is for all
    clients that share this quota together."""

    produce: float
    fetch: float
    produce_shared: bool
    fetch_shared: bool


class BrokerOptions(Value):
    """The options that a broker starts with; the fields of pb_broker_options."""

    backend: str
    node_id: int
    reactor_count: int
    spin_us: int
    buffer_budget_bytes: int
    max_request_bytes: int
    max_connections: int
    connections_max_idle_ms: int
    fetch_session_slots: int
    fetch_max_bytes: int
    history_cache_bytes: int = 0
    """0: the smallest cache that the data plane works with."""
    slow_request_ms: int = 0
    """A request that takes this long or longer causes a NOTICE event; 0: no request does."""


class NativeBroker:
    """The order of calls: open → serve_apis, listen → start → stop → close. Partitions may be opened at any time after
    open and before stop."""

    def __init__(self, options: BrokerOptions) -> None:
        """Open the broker. NativeError when the backend is refused or a limit of the system is hit."""
        if ffi.sizeof("pb_event") != _EVENT.size:
            raise ImportError("pb_event has another layout than this package knows")
        backend = ffi.new("char[]", options.backend.encode())
        values = options.as_dict() | {"backend": backend}
        out, failure = ffi.new("pb_broker **"), new_failure()
        check(lib.pb_broker_open(ffi.new("pb_broker_options *", values), out, failure), failure)
        self.handle: Any = out[0]
        self._events = ffi.new("pb_event[]", _EVENTS_PER_TAKE)
        self._event_bytes = memoryview(ffi.buffer(self._events))
        self._host = ffi.new("char[]", _HOST_BYTES)
        self._descriptors: list[int] = []
        self._at_end: list[Callable[[], None]] = []

    @property
    def backend(self) -> str:
        """`io_uring` or `epoll`."""
        name: str = ffi.string(lib.pb_broker_backend(self.handle)).decode()
        return name

    def serve_apis(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        """Set the APIs that this broker serves: (api key, lowest version, highest version). Call it before `start`."""
        check(lib.pb_broker_serve_apis(self.handle, ffi.new("pb_api_range[]", list(ranges)), len(ranges)))

    def listen(self, name: str, host: str, port: int) -> int:
        """Listen on an address; the host "" means every address, and the port 0 any free port. Returns the port. Call
        it before `start`."""
        bound, failure = ffi.new("int32_t *"), new_failure()
        check(lib.pb_broker_listen(self.handle, name.encode(), host.encode(), port, bound, failure), failure)
        return int(bound[0])

    def start(self) -> None:
        """Start the reactors."""
        failure = new_failure()
        check(lib.pb_broker_start(self.handle, failure), failure)

    def end_requests(self) -> None:
        """Take no more requests and answer those under way. `stop` then waits up to 5 s for answers that are due, and
        up to a second more for clients to close their connections."""
        lib.pb_broker_end_requests(self.handle)

    def stop(self) -> None:
        """Close all connections and end the threads. Blocking."""
        lib.pb_broker_stop(self.handle)

    def close(self) -> None:
        """Free the broker. All of its partitions must be closed."""
        lib.pb_broker_close(self.handle)
        self.handle = ffi.NULL
        while self._at_end:
            self._at_end.pop()()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def close_with_it(self, descriptor: int) -> None:
        """Take over a file descriptor: `close` closes it last."""
        self._descriptors.append(descriptor)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Have `close` call `callback` when the broker is freed, before it closes the descriptors of
        `close_with_it`."""
        self._at_end.append(callback)

    def can_sync_log_dir(self, path: str) -> bool:
        """Whether `sync_log_dir` is possible. Partitions of that dir must have been opened, all on its file system, and
        the kernel must report failures of syncfs."""
        return bool(lib.pb_broker_sync_log_dir(self.handle, path.encode(), True) == 0)

    def sync_log_dir(self, path: str) -> None:
        """Sync the whole file system of a log dir (syncfs). NativeError: the sync failed, and trying again would not
        help. Blocking."""
        check(lib.pb_broker_sync_log_dir(self.handle, path.encode(), False))

    def drain_file(self, path: str) -> None:
        """Truncate a file that is about to be unlinked, in steps so slow that other I/O hardly notices. NativeError
        when somebody has the file open. Blocking, for seconds."""
        check(lib.pb_broker_drain_file(self.handle, path.encode()))

    # ---- events ----------------------------------------------------------------------------------------------------

    @property
    def event_fd(self) -> int:
        """An eventfd that is readable while events wait."""
        return int(lib.pb_broker_event_fd(self.handle))

    def take_events(self) -> Iterator[RawEvent]:
        """Up to 256 events, oldest first. Consume them before the next call, which overwrites their buffer."""
        count = lib.pb_broker_take_events(self.handle, self._events, _EVENTS_PER_TAKE)
        return _EVENT.iter_unpack(self._event_bytes[: count * _EVENT.size])

    def taken(self, request: int) -> None:
        """Say that the body and the client id of a request have been copied. The data plane may then use the receive
        buffer that holds them for other requests."""
        lib.pb_request_taken(self.handle, request)

    def reply(self, request: int, body: bytes, throttle_ms: int = 0) -> None:
        """Answer a request with the encoded body of its response. After the answer, the data plane reads no request
        from that connection for `throttle_ms`."""
        if throttle_ms > 0:
            lib.pb_request_mute(self.handle, request, throttle_ms)
        check(lib.pb_request_reply(self.handle, request, body, len(body)))

    def reply_part(self, request: int, part: bytes) -> None:
        """Add a part to the body of an answer. `reply` adds the last part and sends the answer."""
        check(lib.pb_request_reply_part(self.handle, request, part, len(part)))

    def close_request(self, request: int) -> None:
        """Close the connection of a request instead of answering it."""
        lib.pb_request_close(self.handle, request)

    def verified(self, request: int, errors: Sequence[int]) -> None:
        """Answer a VERIFY event. `errors` has for each of its partitions, in their order, 0 or the error code that the
        producer gets."""
        lib.pb_request_verified(self.handle, request, ffi.new("int16_t[]", list(errors)), len(errors))

    def client_host(self, request: int) -> str:
        """The numeric address of the request's client. Call it before the reply."""
        length = lib.pb_request_client_host(self.handle, request, self._host, _HOST_BYTES)
        check(min(length, 0))
        host: str = ffi.string(self._host).decode()
        return host

    def take_notice(self, notice: int, text: int) -> str:
        """Return the text of a NOTICE event and release the notice."""
        words: str = ffi.string(ffi.cast("const char *", text)).decode(errors="replace")
        lib.pb_notice_release(notice)
        return words

    def limit_connections(self, max_connections: int) -> None:
        """Set how many connections may be open; further ones are refused. Takes effect at once. Open connections
        stay open."""
        lib.pb_broker_limit_connections(self.handle, max_connections)

    def set_racks(self, racks: Mapping[int, str]) -> None:
        """Set the racks of brokers by node id: of all brokers that serve and have a rack. A consumer that names a rack
        is sent to a replica in that rack (KIP-392). With no racks, no consumer is sent elsewhere."""
        names = {node_id: ffi.new("char[]", rack.encode()) for node_id, rack in racks.items()}
        check(lib.pb_broker_set_racks(self.handle, ffi.new("pb_broker_rack[]", list(names.items())), len(names)))

    def set_client_quotas(
        self, named: Mapping[str, ByteRates], others: ByteRates, sample_count: int, sample_ms: int
    ) -> None:
        """Set the bytes per second that clients may produce and fetch (KIP-13), from now on. `named` has the rates of
        single client ids, and `others` is for every other client id. The data plane measures a client's rate over
        `sample_count` samples of `sample_ms` each (quota.window.num, quota.window.size.seconds)."""
        ids = [client_id.encode() for client_id in named]
        texts = [ffi.new("char[]", each) for each in ids]
        lengths = map(len, ids)
        rows = [(text, length, *rates) for text, length, rates in zip(texts, lengths, named.values(), strict=True)]
        others_row = ffi.new("pb_client_quota *", (ffi.NULL, -1, *others))
        array = ffi.new("pb_client_quota[]", rows)
        check(lib.pb_broker_set_client_quotas(self.handle, array, len(rows), others_row, sample_count, sample_ms))

    def limit_leader_replication(self, bytes_per_second: int) -> None:
        """Bound the bytes per second that this broker sends to followers outside the ISR, for partitions that are
        `leader_throttled`. 0: no bound. Takes effect at once."""
        lib.pb_broker_limit_leader_replication(self.handle, bytes_per_second)

    def limit_follower_replication(self, bytes_per_second: int) -> None:
        """Bound the bytes per second that this broker's lagging followers together fetch, for partitions that are
        `follower_throttled`. 0: no bound. Takes effect at once."""
        lib.pb_broker_limit_follower_replication(self.handle, bytes_per_second)

    def limit_cleaning(self, bytes_per_second: int) -> None:
        """Bound the bytes per second that all log cleaners together read and write. 0: no bound. Takes effect at
        once."""
        lib.pb_broker_limit_cleaning(self.handle, bytes_per_second)


_new_char = ffi.typeof("const char *")


def read_bytes(address: int, length: int) -> bytes:
    """A copy of the bytes at an address of an event."""
    data: bytes = ffi.unpack(ffi.cast(_new_char, address), length) if length else b""
    return data


def view_bytes(address: int, length: int) -> memoryview:
    """The bytes at an address of an event, not copied. The view is valid until the request is taken or answered."""
    return memoryview(ffi.buffer(ffi.cast("const char *", address), length))


def read_verified_partitions(address: int, count: int) -> tuple[tuple[str, int], ...]:
    """(topic, partition) of the partitions of a VERIFY event."""
    rows = ffi.cast("const pb_verified_partition *", address)
    return tuple((ffi.string(rows[i].topic).decode(), rows[i].partition) for i in range(count))
