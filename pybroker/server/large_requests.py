"""Serves requests over 64 KiB, and encodes long answers, in slices, so that they do not hold up the asyncio loop.

Large requests wait in a queue, not decoded. At any time one request over 1 MiB may be decoded, and smaller ones of
8 MiB together. So memory is bounded by the largest request and not by the number of clients. A request that may be
decoded "has a place". The next place goes to the request that would finish first if each had begun when it arrived. So
small requests go ahead of huge ones, and huge ones still get their turn.

The body of a waiting request is copied out of its receive buffer, up to 64 MiB in all. Further bodies stay in the
receive buffers, so clients that send more have to wait. All of this runs on the asyncio loop.
"""

from __future__ import annotations

import asyncio
import gc
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from pybroker import turns
from pybroker.native.broker import NativeBroker, view_bytes
from pybroker.observability.log_limit import current_peer
from pybroker.protocol.runtime import Message, Struct, element_count
from pybroker.server.api import Api, BrokerServices, Encoded, RequestContext

LARGE_BYTES = 64 << 10
"""A request with a longer body is served by this module."""
HUGE_BYTES = 1 << 20
"""A request with a longer body is huge: only one of these has a place at a time."""
MOST_SMALLER_BYTES = 8 << 20
"""The requests that are not huge and have a place have at most this many bytes together."""
MOST_WAITING_BYTES = 64 << 20
"""The copied bodies of waiting requests have at most this many bytes together."""

#: The estimated work of a request per byte, for the order of waiting requests. Topic names take about as long.
_NS_PER_BYTE = 1_700
_COPIED_AT_ONCE_BYTES = 1 << 20
#: A handler that waits for others, replicas for example, keeps its place for this long.
_PLACE_S = 30.0
_PART_BYTES = 64 << 10
#: An answer with more elements is encoded in slices.
_LONG_COUNT = 1_000
_DROPPED_COUNT = 32
#: The thresholds of Python's garbage collector while any large request has a place: small collections, no full one.
_QUICK_COLLECTIONS = (2_000, 5, 1_000_000)

_JOIN_GROUP_KEY, _SYNC_GROUP_KEY = 11, 14
#: Requests of group members: OffsetCommit, OffsetFetch, JoinGroup, Heartbeat, LeaveGroup, SyncGroup.
_OF_MEMBERS = frozenset({8, 9, _JOIN_GROUP_KEY, 12, 13, _SYNC_GROUP_KEY})
#: Requests that wait for other members, for as long as these take. The coordinator bounds the memory that they hold.
_PARKED = frozenset({_JOIN_GROUP_KEY, _SYNC_GROUP_KEY})

Fail = Callable[[int, RequestContext, Exception], None]


class LargeRequest:
    """A large request, from its arrival to its answer. `data` is its body, or None once the body is decoded."""

    __slots__ = (
        "api",
        "arrived_ns",
        "context",
        "data",
        "handle",
        "has_place",
        "is_answered",
        "is_copy",
        "is_held",
        "length",
    )

    def __init__(
        self, handle: int, context: RequestContext, api: Api[Any, Any], data: memoryview, arrived_ns: int
    ) -> None:
        self.handle = handle
        self.context = context
        self.api = api
        self.data: memoryview | None = data
        self.length = len(data)
        self.is_copy = False
        #: The body, or what comes with it, is in a receive buffer.
        self.is_held = False
        self.is_answered = False
        self.has_place = False
        self.arrived_ns = arrived_ns

    @property
    def is_huge(self) -> bool:
        return self.length > HUGE_BYTES

    @property
    def rank(self) -> int:
        """When this request would have finished if it had begun on arrival, in ns of the loop's clock. The waiting
        request with the lowest rank gets the next place."""
        return self.arrived_ns + self.length * _NS_PER_BYTE


class LargeRequests:
    """`fail` answers a request that came to nothing."""

    def __init__(self, native: NativeBroker, services: BrokerServices, fail: Fail) -> None:
        self._native = native
        self._services = services
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._turns = turns.current()
        self._waiting: list[LargeRequest] = []
        self._waiting_bytes = 0
        #: Those that are unpacked.
        self._placed: set[LargeRequest] = set()
        self._tasks: dict[asyncio.Task[None], LargeRequest] = {}
        #: Requests of members that have had no effect yet, in the order of their arrival.
        self._unheard: dict[LargeRequest, None] = {}
        self._judges: list[tuple[set[LargeRequest], Callable[[], None]]] = []
        self._thresholds: tuple[int, int, int] | None = None
        self._is_stopping = False

    # ---- from arrival to a place -----------------------------------------------------------------------------------

    def take(
        self, handle: int, context: RequestContext, api: Api[Any, Any], body: int, length: int, *, is_held: bool
    ) -> None:
        """Serve a request whose body of `length` bytes is at the address `body`. With `is_held` the body is in a
        receive buffer, which other connections may need."""
        one = LargeRequest(handle, context, api, view_bytes(body, length), self._loop_ns())
        one.is_held = is_held
        if context.api_key in _OF_MEMBERS:
            self._unheard[one] = None
        if is_held and self._waiting_bytes + length <= MOST_WAITING_BYTES:
            self._waiting_bytes += length
            one.is_copy = True
            self._begin(one, self._copy(one))
        else:
            self._wait(one)

    async def stop(self) -> None:
        """Close the connections of all requests that are not answered."""
        self._is_stopping = True
        for one in self._waiting:
            self._native.close_request(one.handle)
        self._waiting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def when_heard(self, judge: Callable[[], None]) -> None:
        """Call `judge` when every group member's request that has arrived by now has had its effect."""
        if self._unheard:
            self._judges.append((set(self._unheard), judge))
        else:
            judge()

    def _loop_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    def _begin(self, one: LargeRequest, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = one
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        one = self._tasks.pop(task)
        if task.cancelled():
            # Done here and not in the coroutine: a task that is cancelled before its first step never runs it.
            if not one.is_answered:
                self._native.close_request(one.handle)
            self._heard(one)

    async def _copy(self, one: LargeRequest) -> None:
        assert one.data is not None
        copy = bytearray()
        for start in range(0, one.length, _COPIED_AT_ONCE_BYTES):
            if self._turns.is_over():
                await self._turns.next()
            copy += one.data[start : start + _COPIED_AT_ONCE_BYTES]
        one.data = memoryview(copy)
        one.is_held = False
        self._native.taken(one.handle)
        self._wait(one)

    def _wait(self, one: LargeRequest) -> None:
        if self._is_stopping:
            self._native.close_request(one.handle)
            return
        self._waiting.append(one)
        self._give_places()

    def _give_places(self) -> None:
        """Give free places to waiting requests, the lowest rank first, and begin to serve these."""
        for is_huge in (False, True):
            while one := min((each for each in self._waiting if each.is_huge is is_huge), key=_rank, default=None):
                placed = [each.length for each in self._placed if each.is_huge is is_huge]
                if placed and (is_huge or sum(placed) + one.length > MOST_SMALLER_BYTES):
                    break
                self._waiting.remove(one)
                self._placed.add(one)
                one.has_place = True
                self._spare_collector()
                self._begin(one, self._serve(one))

    def _leave_place(self, one: LargeRequest) -> None:
        if not one.has_place:
            return
        one.has_place = False
        self._placed.discard(one)
        self._spare_collector()
        if not self._is_stopping:
            self._give_places()

    def _spare_collector(self) -> None:
        """Switch the garbage collector's thresholds when the first place is taken and when the last one is left. A full
        collection would go through all decoded requests, and none of them is garbage."""
        if self._placed and self._thresholds is None:
            self._thresholds = gc.get_threshold()
            if gc.isenabled() and gc.get_count()[2] > self._thresholds[2]:
                gc.collect()
            gc.set_threshold(*_QUICK_COLLECTIONS)
        elif not self._placed and self._thresholds is not None:
            gc.set_threshold(*self._thresholds)
            self._thresholds = None

    # ---- from a place to the answer --------------------------------------------------------------------------------

    async def _serve(self, one: LargeRequest) -> None:
        current_peer.set(one.context.client_host)
        place = self._loop.call_later(_PLACE_S, self._leave_place, one)
        try:
            await self._unpacked(one)
        except Exception as error:
            if one.is_answered:
                raise
            one.is_answered = True
            self._fail(one.handle, one.context, error)
        finally:
            place.cancel()
            self._let_go_of_body(one)
            self._heard(one)
            self._leave_place(one)

    async def _unpacked(self, one: LargeRequest) -> None:
        assert one.data is not None
        context = one.context
        request, _ = await turns.run_in_slices(one.api.request.decode_in_slices(context.api_version, one.data))
        await self._give_body_back(one)
        unpacked = [request]

        def waits() -> None:
            self._heard(one)
            if context.api_key in _PARKED:
                unpacked.clear()
                self._leave_place(one)

        handling = one.api.handle(self._services, context, request)
        del request
        response = await _watched(handling, self._turns, waits)
        self._heard(one)
        last = await send_in_slices(self._native, one.handle, context.api_version, response)
        one.is_answered = True
        self._native.reply(one.handle, last, getattr(response, "throttle_time_ms", 0))
        for each in (*unpacked, response):
            await drop_message(each)

    async def _give_body_back(self, one: LargeRequest) -> None:
        """Give the body's memory back. For a huge body a thread does it, because that takes tens of milliseconds."""
        if one.is_held and one.is_huge:
            one.data, one.is_held = None, False
            giving = self._loop.run_in_executor(None, self._native.taken, one.handle)
            try:
                await asyncio.shield(giving)
            except asyncio.CancelledError:
                # The request is closed next, which must wait for the thread.
                await asyncio.wait([giving])
                raise
        self._let_go_of_body(one)

    def _let_go_of_body(self, one: LargeRequest) -> None:
        one.data = None
        if one.is_held and not one.is_answered:
            one.is_held = False
            self._native.taken(one.handle)
        if one.is_copy:
            one.is_copy = False
            self._waiting_bytes -= one.length

    def _heard(self, one: LargeRequest) -> None:
        if one not in self._unheard:
            return
        del self._unheard[one]
        for awaited, _ in self._judges:
            awaited.discard(one)
        while self._judges and not self._judges[0][0]:
            self._judges.pop(0)[1]()


def _rank(one: LargeRequest) -> int:
    return one.rank


@types.coroutine
def _watched(
    handling: Coroutine[Any, Any, Any], slices: turns.Turns, waits: Callable[[], None]
) -> Generator[Any, Any, Any]:
    """The result of a handler. `waits` is called each time that the handler waits for anything but its next slice."""
    failure: BaseException | None = None
    while True:
        try:
            waits_for = handling.send(None) if failure is None else handling.throw(failure)
        except StopIteration as done:
            return done.value
        if not slices.is_next(waits_for):
            waits()
        failure = None
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001 - handed on to the handler, a cancellation too
            failure = error


# ---- answers ---------------------------------------------------------------------------------------------------------


def is_long(response: Message | Encoded) -> bool:
    """Whether an answer is to be encoded, or copied, in slices."""
    if isinstance(response, bytes):
        return len(response) > HUGE_BYTES
    if isinstance(response, list):
        return True
    return isinstance(response, Struct) and element_count(response, _LONG_COUNT) > _LONG_COUNT


async def send_in_slices(native: NativeBroker, handle: int, version: int, response: Message | Encoded) -> bytes:
    """Encode a response and give it to the data plane in parts. Returns the last part: the caller answers with it.
    ProtocolError when the response cannot be encoded."""
    slices = turns.current()
    if isinstance(response, list):
        for part in response:
            native.reply_part(handle, part)
            if slices.is_over():
                await slices.next()
        return b""
    if isinstance(response, bytes):
        for start in range(0, len(response), _COPIED_AT_ONCE_BYTES):
            native.reply_part(handle, response[start : start + _COPIED_AT_ONCE_BYTES])
            if slices.is_over():
                await slices.next()
        return b""
    pieces: list[bytes] = []
    gathered_bytes = 0
    for piece in response.encode_in_slices(version):
        pieces.append(piece)
        gathered_bytes += len(piece)
        if gathered_bytes >= _PART_BYTES:
            native.reply_part(handle, b"".join(pieces))
            pieces.clear()
            gathered_bytes = 0
        if slices.is_over():
            await slices.next()
    return b"".join(pieces)


async def drop_message(message: Any) -> None:
    """Free a message that nobody needs any more, in slices. Its lists of structs and of strings are emptied, so no
    cache, image or other message may share them. The structs in them, and arrays of plain values in these structs, stay
    as they are: a handler may have kept them."""
    if not isinstance(message, Struct):
        return
    for name in message.__slots__:
        items = getattr(message, name)
        if type(items) is not list or not items:
            continue
        if isinstance(items[0], Struct):
            await _drop_structs(items)
        elif isinstance(items[0], str):
            await turns.drop(items)


async def _drop_structs(items: list[Any]) -> None:
    slices = turns.current()
    arrays = [name for name in items[0].__slots__ if type(getattr(items[0], name)) is list]
    while items:
        for last in items[-_DROPPED_COUNT:]:
            for name in arrays:
                inner = getattr(last, name)
                if inner and len(inner) > _DROPPED_COUNT and isinstance(inner[0], Struct):
                    await _drop_structs(inner)
        last = None
        del items[-_DROPPED_COUNT:]
        if slices.is_over():
            await slices.next()
