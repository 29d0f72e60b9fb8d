"""From the data plane's events to handlers and back: the broker's dispatcher.

Runs on the asyncio loop, woken by one file descriptor for a batch of events. A handler is stepped once; when it is done
then, and most are, its answer leaves at once. One that waits for a future is stepped again when that is decided. Only
one that waits for something else, or once more, becomes a Task, whose life costs as much as many a handler. A client's
bad request costs it its connection and the log one line.

Requests over 64 KiB, and answers that are long, are the business of `large_requests`. A round of the loop handles
events for no longer than a slice (`pybroker.turns`); the rest comes in the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from pybroker import turns
from pybroker.native.broker import (
    EVENT_APPENDED,
    EVENT_CAUGHT_UP,
    EVENT_FOLLOWER,
    EVENT_NOTICE,
    EVENT_OFFLINE,
    EVENT_REQUEST,
    EVENT_VERIFY,
    NOTICE_ROLL,
    NOTICE_SLOW_REQUEST,
    NOTICE_THROTTLE,
    NOTICE_TROUBLE,
    NULL_LENGTH,
    NativeBroker,
    RawEvent,
    read_bytes,
    read_verified_partitions,
)
from pybroker.observability import event_log
from pybroker.observability.log_bounds import shorten
from pybroker.observability.log_limit import caused_by, current_peer
from pybroker.protocol.errors import KafkaError, ProtocolError, VersionNotTaken
from pybroker.protocol.loader import response_class
from pybroker.protocol.runtime import MAX_STRING_BYTES, Message, cut_utf8
from pybroker.server.add_partitions_to_txn_manager import Verification
from pybroker.server.api import Api, BrokerServices, Encoded, RequestContext
from pybroker.server.apis.cluster.api_versions import unsupported_version_body
from pybroker.server.large_requests import LARGE_BYTES, LargeRequests, drop_message, is_long, send_in_slices
from pybroker.server.stepping import resume

logger = logging.getLogger(__name__)

_API_VERSIONS_KEY = 18
_PRINCIPAL = "User:ANONYMOUS"
_MAX_KNOWN_HOSTS = 4096
_CLIENT_ID_BYTES = 256
_MOST_BYTES_PER_CHARACTER = 4
_UTF_8 = ("utf-8", "replace")
_NOTICES: Mapping[int, tuple[int, dict[str, Any]]] = {
    NOTICE_TROUBLE: (logging.WARNING, {}),
    NOTICE_SLOW_REQUEST: (logging.WARNING, event_log.event("slow_request")),
    NOTICE_ROLL: (logging.INFO, event_log.event("roll")),
    NOTICE_THROTTLE: (logging.WARNING, event_log.event("throttle")),
}


class EventPump:
    """`start` when the services are there, `open` when they may be asked; `stop` before the data plane stops; `drain`
    after. Requests that come before `open` wait for it, as Apache Kafka's do until the broker is unfenced: what is
    known of this broker until then is of an earlier life."""

    def __init__(
        self,
        native: NativeBroker,
        apis: Mapping[int, Api[Any, Any]],
        services: BrokerServices,
        listeners: Sequence[str],
    ) -> None:
        """`apis` by api key; `listeners` are names in the order in which they were opened."""
        self._native = native
        self._apis = apis
        self._services = services
        self._listeners = list(listeners)
        self._hosts: dict[int, str] = {}
        self._awaited: set[asyncio.Future[Any]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        #: Requests that wait for `open`; None: it is.
        self._early: list[RawEvent] | None = []
        #: Events, and functions to be called when all before them are handled.
        self._pending: deque[RawEvent | Callable[[], None]] = deque()
        self._is_scheduled = False
        self._loop = asyncio.get_running_loop()
        self._turns = turns.current()
        self._large = LargeRequests(native, services, self._fail)

    def start(self) -> None:
        """Begin to take events."""
        self._loop.add_reader(self._native.event_fd, self._on_events)

    def open(self) -> None:
        """Serve requests, those that wait for it first."""
        early, self._early = self._early or [], None
        for event in early:
            self._serve(event)
        current_peer.set("")

    async def stop(self) -> None:
        """Close the connections of requests that wait, and from now on of those that come. Appends still finish."""
        self._stopping = True
        self.open()
        while self._pending:
            self._handle_next()
        awaited = list(self._awaited)
        for future in awaited:
            future.cancel()
        # Comes after their callbacks, which go on with the handlers.
        await asyncio.gather(*awaited, return_exceptions=True)
        await self._large.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drain(self) -> None:
        """After the data plane has stopped: take what it left, and no more."""
        self._loop.remove_reader(self._native.event_fd)
        while self._receive() or self._pending:
            while self._pending:
                self._handle_next()

    def after_received(self, judge: Callable[[], None]) -> None:
        """Call `judge` once every request that the data plane has received by now is handled: for deadlines that one of
        them may have met."""
        while self._receive():
            pass
        self._pending.append(partial(self._large.when_heard, judge))
        self._schedule()

    def _on_events(self) -> None:
        """There are events, or all that there were are taken. The descriptor stays readable while there are more."""
        if not self._is_scheduled:
            self._receive()
            self._work()

    def _receive(self) -> bool:
        """Take one batch; whether there was any."""
        before_count = len(self._pending)
        self._pending.extend(self._native.take_events())
        return len(self._pending) > before_count

    def _work(self) -> None:
        """Handle what is pending, as far as a slice goes, so that other work of the loop gets its turn."""
        self._is_scheduled = False
        self._turns.begin()
        while self._pending:
            self._handle_next()
            if self._turns.is_over():
                break
        if self._pending:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._work)

    def _handle_next(self) -> None:
        item = self._pending.popleft()
        try:
            if callable(item):
                item()
            else:
                self._handle(item)
        except Exception:  # a defect; the events behind this one must not be lost with it
            logger.exception("an event could not be handled: %s", item)
        finally:
            current_peer.set("")

    def _handle(self, event: RawEvent) -> None:
        kind = event[0]
        if kind == EVENT_REQUEST:
            if self._early is None:
                self._serve(event)
            else:
                self._early.append(event)
        elif kind == EVENT_APPENDED:
            self._services.replicas.on_appended(event[2], event[3], event[1])
        elif kind == EVENT_CAUGHT_UP:
            self._services.replicas.on_caught_up(event[2], event[3])
        elif kind == EVENT_FOLLOWER:
            self._in_background(self._services.replicas.on_follower(event[2], event[1], event[3]))
        elif kind == EVENT_NOTICE:
            self._log_notice(event)
        elif kind == EVENT_OFFLINE:
            self._in_background(self._services.replicas.on_offline(event[2], event[3], event[1]))
        elif kind == EVENT_VERIFY:
            self._verify(event)
        else:
            logger.error("the data plane sent an event of unknown kind %d", kind)

    def _verify(self, event: RawEvent) -> None:
        _, _, handle, producer_id, _, partitions, transactional_id, count, length, epoch, version, _, _, _ = event
        manager = self._services.transactions
        if manager is None:
            self._native.verified(handle, ())
            return
        manager.verify(
            Verification(
                handle,
                read_bytes(transactional_id, length).decode(*_UTF_8),
                producer_id,
                epoch,
                read_verified_partitions(partitions, count),
                version,
            )
        )

    def _log_notice(self, event: RawEvent) -> None:
        # Its memory goes with the text.
        peer = read_bytes(event[6], event[8]).decode(*_UTF_8)
        text = self._native.take_notice(event[2], event[5])
        level, extra = _NOTICES[event[1]]
        if event[1] == NOTICE_ROLL:
            # The text begins with the partition, and no topic's name has a blank.
            extra = event_log.event("roll", partition=text.partition(" ")[0])
        if event[13] > 0:
            text = f"{text} (and {event[13]} more like it)"
        logger.log(level, "%s", text, extra={**extra, **caused_by(peer, event[4])})

    # ---- requests --------------------------------------------------------------------------------------------------

    def _serve(self, event: RawEvent) -> None:
        _, _, handle, is_held, connection, body, client, length, client_length, *rest = event
        key, version, correlation, listener, _ = rest
        if self._stopping:
            self._native.close_request(handle)
            return
        api = self._apis[key]
        if key == _API_VERSIONS_KEY and not api.min_version <= version <= api.max_version:
            self._native.reply(handle, unsupported_version_body(api))
            return
        client_id = None if client_length == NULL_LENGTH else _client_id(read_bytes(client, client_length))
        host = self._hosts.get(connection) or self._find_host(connection, handle)
        # Log lines until the request is answered, by tasks that it begins as well, name this client.
        current_peer.set(host)
        name = self._listeners[listener]
        context = RequestContext(key, version, correlation, client_id, host, name, _PRINCIPAL, connection)
        if length > LARGE_BYTES:
            self._large.take(handle, context, api, body, length, is_held=bool(is_held))
            return
        data = read_bytes(body, length)
        if is_held:
            self._native.taken(handle)
        try:
            request, _ = api.request.decode(version, data)
            handling = api.handle(self._services, context, request)
            waits_for = handling.send(None)
        except StopIteration as done:
            response = done.value
        except Exception as error:  # noqa: BLE001 - _fail sorts them and logs what is unexpected
            self._fail(handle, context, error)
            return
        else:
            if isinstance(waits_for, asyncio.Future):
                # A Task does this when its coroutine waits: it tells the future that the wait has been noted.
                waits_for._asyncio_future_blocking = False
                self._awaited.add(waits_for)
                waits_for.add_done_callback(partial(self._go_on, handle, context, handling))
            else:
                self._finish_in_background(handle, context, handling, waits_for)
            return
        if isinstance(response, bytes | list):
            self._answer_any(handle, context, response)
        else:
            self._answer(handle, context, response)

    def _go_on(
        self, handle: int, context: RequestContext, handling: Coroutine[Any, Any, Any], future: asyncio.Future[Any]
    ) -> None:
        """The first future that a handler waited for is decided. One append may decide thousands of them."""
        self._awaited.discard(future)
        if self._turns.is_over() and not self._stopping:
            self._pending.append(partial(self._step, handle, context, handling))
            self._schedule()
        else:
            self._step(handle, context, handling)

    def _step(self, handle: int, context: RequestContext, handling: Coroutine[Any, Any, Any]) -> None:
        current_peer.set(context.client_host)
        try:
            waits_for = handling.send(None)
        except StopIteration as done:
            self._answer_any(handle, context, done.value)
        except asyncio.CancelledError:
            self._native.close_request(handle)
        except Exception as error:  # noqa: BLE001 - _fail sorts them and logs what is unexpected
            self._fail(handle, context, error)
        else:
            self._finish_in_background(handle, context, handling, waits_for)

    def _find_host(self, connection_id: int, handle: int) -> str:
        if len(self._hosts) >= _MAX_KNOWN_HOSTS:
            self._hosts.clear()
        host = self._hosts[connection_id] = self._native.client_host(handle)
        return host

    def _finish_in_background(
        self, handle: int, context: RequestContext, handling: Coroutine[Any, Any, Any], waits_for: Any
    ) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            # Not for the coroutine to do: cancelled before its first turn, it never runs, and a request that has no end
            # keeps the data plane from stopping.
            if task.cancelled():
                self._native.close_request(handle)

        rest = resume(handling, waits_for)
        self._in_background(self._finish(handle, context, rest)).add_done_callback(ended)

    def _answer_any(self, handle: int, context: RequestContext, response: Message | Encoded) -> None:
        """As `_answer`, for one that may be long: it took more than one step to make."""
        if not isinstance(response, list) and not is_long(response):
            self._answer(handle, context, response)
            return

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                self._native.close_request(handle)

        self._in_background(self._answer_long(handle, context, response)).add_done_callback(ended)

    async def _answer_long(self, handle: int, context: RequestContext, response: Message | Encoded) -> None:
        try:
            last = await send_in_slices(self._native, handle, context.api_version, response)
        except Exception as error:  # noqa: BLE001 - a defect, whatever it is: the request must come to an end
            self._close_for_defect(handle, context, error)
        else:
            self._native.reply(handle, last, getattr(response, "throttle_time_ms", 0))
            self._in_background(drop_message(response))

    async def _finish(self, handle: int, context: RequestContext, rest: Awaitable[Any]) -> None:
        try:
            response = await rest
        except Exception as error:  # noqa: BLE001 - _fail sorts them and logs what is unexpected
            self._fail(handle, context, error)
        else:
            self._answer_any(handle, context, response)

    def _answer(self, handle: int, context: RequestContext, response: Message | bytes) -> None:
        try:
            body = response if isinstance(response, bytes) else response.encode(context.api_version)
            throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        except Exception as error:  # noqa: BLE001 - a defect, whatever it is: the request must come to an end
            self._close_for_defect(handle, context, error)
        else:
            # The broker itself holds back a client that is told to wait (KIP-219): older clients know nothing of it.
            self._native.reply(handle, body, throttle_ms)

    def _fail(self, handle: int, context: RequestContext, error: Exception) -> None:
        if isinstance(error, KafkaError):
            body = _error_body(context, error)
            if body is not None:
                self._native.reply(handle, body)
                return
        if isinstance(error, ProtocolError):
            logger.warning("%s: malformed request, connection closed: %s", _described(context), error)
            self._native.close_request(handle)
        elif isinstance(error, VersionNotTaken):
            logger.warning("%s: %s; connection closed, so that the client asks again", _described(context), error)
            self._native.close_request(handle)
        else:
            self._close_for_defect(handle, context, error)

    def _close_for_defect(self, handle: int, context: RequestContext, error: Exception) -> None:
        logger.error("%s failed, connection closed", _described(context), exc_info=error)
        self._native.close_request(handle)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _error_body(context: RequestContext, error: KafkaError) -> bytes | None:
    """A response that has nothing but the error code, where the API has one for the whole request."""
    kind: Any = response_class(context.api_key)
    if "error_code" not in kind.__slots__:
        return None
    try:
        body: bytes = kind(error_code=error.code).encode(context.api_version)
        # Older versions may have no such field and leave it out: that would be an answer without any error.
        return None if body == kind().encode(context.api_version) else body
    except ProtocolError:
        return None


def _client_id(data: bytes) -> str:
    """As Kafka reads it. Bytes that are no UTF-8 become longer, and answers and records repeat the id."""
    text = data.decode(*_UTF_8)
    if len(text) <= MAX_STRING_BYTES // _MOST_BYTES_PER_CHARACTER:
        return text
    return cut_utf8(text.encode(), MAX_STRING_BYTES).decode()


def _described(context: RequestContext) -> str:
    client = None if context.client_id is None else shorten(context.client_id, _CLIENT_ID_BYTES)
    return (
        f"{context.client_host} (client {client!r}, connection {context.connection_id}): request of API "
        f"{context.api_key} version {context.api_version}"
    )
