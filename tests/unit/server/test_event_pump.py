"""The dispatcher over a data plane that is a list of events: which answers leave, when, and what errors cost."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.native.bindings import ffi
from pybroker.native.broker import (
    EVENT_APPENDED,
    EVENT_CAUGHT_UP,
    EVENT_FOLLOWER,
    EVENT_NOTICE,
    EVENT_OFFLINE,
    EVENT_REQUEST,
    NOTICE_ROLL,
    NULL_LENGTH,
    RawEvent,
)
from pybroker.observability.event_log import event_of
from pybroker.observability.log_limit import caused_by, current_peer
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError, VersionNotTaken
from pybroker.server.api import Api, RequestContext
from pybroker.server.event_pump import EventPump

HEARTBEAT = 12
METADATA = 3

Handler = Callable[[Any, RequestContext, Any], Coroutine[Any, Any, Any]]


class FakeNative:
    """Hands out queued events; keeps what was answered."""

    def __init__(self) -> None:
        self.event_fd, self._write_fd = os.pipe()
        self.events: list[RawEvent] = []
        self.replies: dict[int, bytes] = {}
        self.parts: dict[int, list[bytes]] = {}
        self.taken_from: list[int] = []
        self.throttled_ms: dict[int, int] = {}
        self.closed: list[int] = []
        self.host_lookup_count = 0
        self._kept: list[Any] = []

    def put(self, *event: int) -> None:
        self.events.append((*event, *([0] * (14 - len(event)))))  # type: ignore[arg-type]  # 14 numbers
        os.write(self._write_fd, b"x")

    def request(
        self,
        handle: int,
        body: bytes,
        *,
        api_key: int = HEARTBEAT,
        version: int = 4,
        connection: int = 1,
        client: bytes = b"me",
        is_held: bool = False,
    ) -> None:
        kept = ffi.from_buffer(body), ffi.from_buffer(client)
        self._kept += kept
        addresses = [int(ffi.cast("uintptr_t", each)) for each in kept]
        lengths = len(body), len(client)
        self.put(EVENT_REQUEST, 0, handle, int(is_held), connection, *addresses, *lengths, api_key, version, 9, 0)

    def take_events(self) -> Iterator[RawEvent]:
        if self.events:
            os.read(self.event_fd, 1000)
        taken, self.events = self.events, []
        return iter(taken)

    def reply(self, handle: int, body: bytes, throttle_ms: int = 0) -> None:
        assert handle not in self.replies
        self.replies[handle] = b"".join((*self.parts.pop(handle, ()), body))
        if throttle_ms:
            self.throttled_ms[handle] = throttle_ms

    def reply_part(self, handle: int, part: bytes) -> None:
        self.parts.setdefault(handle, []).append(part)

    def taken(self, handle: int) -> None:
        self.taken_from.append(handle)

    def close_request(self, handle: int) -> None:
        assert handle not in self.replies and handle not in self.closed
        self.closed.append(handle)

    def client_host(self, handle: int) -> str:
        self.host_lookup_count += 1
        return "10.0.0.1"

    def take_notice(self, notice: int, text: int) -> str:
        return f"notice {notice}"

    def close(self) -> None:
        os.close(self.event_fd)
        os.close(self._write_fd)


class Replicas:
    def __init__(self) -> None:
        self.appended: list[tuple[int, int, int]] = []
        self.offline: list[tuple[int, int, int]] = []
        self.caught_up: list[tuple[int, int]] = []
        self.followed: list[tuple[int, int, int]] = []

    def on_appended(self, ticket: int, offset: int, error: int) -> None:
        self.appended.append((ticket, offset, error))

    async def on_offline(self, tag: int, what: int, error: int) -> None:
        self.offline.append((tag, what, error))

    async def on_follower(self, tag: int, news: int, offset: int) -> None:
        self.followed.append((tag, news, offset))

    def on_caught_up(self, tag: int, replica_id: int) -> None:
        self.caught_up.append((tag, replica_id))


def pumped(
    handler: Handler, scenario: Callable[[FakeNative, EventPump, Replicas], Coroutine[Any, Any, None]]
) -> FakeNative:
    """Run a scenario against a pump whose APIs are all handled by `handler`."""

    async def run() -> FakeNative:
        native, replicas = FakeNative(), Replicas()
        apis: Any = {
            HEARTBEAT: Api(m.HeartbeatRequest, 0, 4, handler),
            METADATA: Api(m.MetadataRequest, 0, 13, handler),
        }
        services: Any = SimpleNamespace(replicas=replicas)
        pump = EventPump(native, apis, services, ["PLAINTEXT"])  # type: ignore[arg-type]  # a double
        pump.start()
        pump.open()
        try:
            await scenario(native, pump, replicas)
        finally:
            await pump.stop()
            pump.drain()
            native.close()
        return native

    return asyncio.run(run())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


BODY = m.HeartbeatRequest(group_id="g", generation_id=3, member_id="m").encode(4)
OK = m.HeartbeatResponse(error_code=0).encode(4)


def test_who_is_told_to_wait_is_not_heard_meanwhile() -> None:
    async def handler(_broker: Any, _context: RequestContext, request: Any) -> Any:
        return m.HeartbeatResponse(throttle_time_ms=700 if request.generation_id == 3 else 0)

    async def scenario(native: FakeNative, _pump: EventPump, _replicas: Replicas) -> None:
        native.request(1, BODY)
        native.request(2, m.HeartbeatRequest(group_id="g", generation_id=4, member_id="m").encode(4))
        await turns()

    native = pumped(handler, scenario)
    assert native.throttled_ms == {1: 700}
    assert set(native.replies) == {1, 2}


def test_an_answer_that_is_ready_leaves_without_a_task() -> None:
    contexts: list[RequestContext] = []

    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        assert (request.group_id, request.generation_id) == ("g", 3)
        contexts.append(context)
        return m.HeartbeatResponse(error_code=0)

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, BODY)
        native.request(2, BODY)
        before = asyncio.all_tasks()
        pump._on_events()
        assert asyncio.all_tasks() == before
        assert native.replies == {1: OK, 2: OK}

    native = pumped(handler, scenario)
    assert contexts[0] == RequestContext(HEARTBEAT, 4, 9, "me", "10.0.0.1", "PLAINTEXT", "User:ANONYMOUS", 1)
    assert native.host_lookup_count == 1, "once per connection"


@pytest.mark.parametrize("opens", [True, False])
def test_requests_wait_until_they_may_be_asked(opens: bool) -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        return m.HeartbeatResponse(error_code=0)

    async def run() -> FakeNative:
        native = FakeNative()
        apis: Any = {HEARTBEAT: Api(m.HeartbeatRequest, 0, 4, handler)}
        pump = EventPump(native, apis, SimpleNamespace(replicas=Replicas()), ["PLAINTEXT"])  # type: ignore[arg-type]
        pump.start()
        for handle in (1, 2):
            native.request(handle, BODY)
        pump._on_events()
        assert (native.replies, native.closed) == ({}, [])
        if opens:
            pump.open()
        await pump.stop()
        pump.drain()
        native.close()
        return native

    native = asyncio.run(run())
    assert (native.replies, native.closed) == (({1: OK, 2: OK}, []) if opens else ({}, [1, 2]))


def test_one_that_waits_does_not_hold_up_others() -> None:
    gates: dict[str, asyncio.Future[bytes]] = {}

    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        if request.group_id != "waits":
            return OK
        gates["first"] = asyncio.get_running_loop().create_future()
        first = await gates["first"]
        gates["second"] = asyncio.get_running_loop().create_future()
        return first + await gates["second"]

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, m.HeartbeatRequest(group_id="waits").encode(4))
        native.request(2, BODY)
        await turns()
        assert native.replies == {2: OK}
        gates["first"].set_result(b"a")
        await turns()
        gates["second"].set_result(b"b")
        await turns()
        assert native.replies == {1: b"ab", 2: OK}

    pumped(handler, scenario)


def test_waiting_for_one_future_takes_no_task_and_may_be_shared() -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        return await gate

    gate: Any = None

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        nonlocal gate
        gate = asyncio.get_running_loop().create_future()
        before = asyncio.all_tasks()
        for handle in (1, 2):
            native.request(handle, BODY)
            await turns()
        assert asyncio.all_tasks() == before
        gate.set_result(OK)
        await turns()
        assert native.replies == {1: OK, 2: OK}

    pumped(handler, scenario)


def test_a_failure_while_waiting_reaches_the_handler() -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        try:
            await gate
        except KafkaError as failure:
            return m.HeartbeatResponse(error_code=failure.code)

    gate: Any = None

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        nonlocal gate
        gate = asyncio.get_running_loop().create_future()
        native.request(1, BODY)
        await turns()
        gate.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        await turns()
        assert m.HeartbeatResponse.decode(4, native.replies[1])[0].error_code == ErrorCode.NOT_COORDINATOR

    pumped(handler, scenario)


@pytest.mark.parametrize("waits", [False, True])
def test_what_errors_cost(waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        if waits:
            await asyncio.sleep(0)
        if context.correlation_id and isinstance(request, m.MetadataRequest):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        raise {"kafka": KafkaError(ErrorCode.NOT_COORDINATOR), "defect": RuntimeError("oops")}[request.group_id]

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, m.HeartbeatRequest(group_id="kafka").encode(4))
        native.request(2, m.HeartbeatRequest(group_id="defect").encode(4))
        native.request(3, m.MetadataRequest().encode(12), api_key=METADATA, version=12)
        await turns(8)
        assert m.HeartbeatResponse.decode(4, native.replies.pop(1))[0].error_code == ErrorCode.NOT_COORDINATOR
        assert sorted(native.closed) == [2, 3], "no error code that would fit, so the connection"
        assert native.replies == {}

    with caplog.at_level(logging.WARNING):
        pumped(handler, scenario)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["oops", "NOT_COORDINATOR"]


def test_a_malformed_request_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        raise AssertionError("never called")

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, b"\xff")
        await turns()
        assert native.closed == [1]

    with caplog.at_level(logging.INFO):
        pumped(handler, scenario)
    assert len(caplog.records) == 1
    assert "10.0.0.1" in caplog.text
    assert "malformed" in caplog.text


@pytest.mark.parametrize("waits", [False, True])
def test_a_version_that_the_controller_does_not_take_closes_the_connection(
    waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_services: Any, _context: RequestContext, _request: Any) -> Any:
        if waits:
            await asyncio.sleep(0)
        raise VersionNotTaken("the active controller does not take Heartbeat version 4")

    async def scenario(native: FakeNative, _pump: EventPump, _replicas: Replicas) -> None:
        native.request(1, BODY)
        await turns(8)

    with caplog.at_level(logging.WARNING):
        native = pumped(handler, scenario)
    assert (native.closed, native.replies) == ([1], {})
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert line.exc_info is None
    assert "does not take Heartbeat version 4; connection closed, so that the client asks again" in line.message


def test_an_answer_that_its_version_cannot_hold_is_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        return m.HeartbeatResponse(error_code=10**9)

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, BODY)
        await turns()
        assert native.closed == [1]

    pumped(handler, scenario)
    assert "cannot be encoded" in str(caplog.records[0].exc_info)


@pytest.mark.parametrize("waits", [False, True])
def test_an_answer_that_is_none_is_a_defect(waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        if waits:
            await asyncio.sleep(0)

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, BODY)
        await turns()
        assert native.closed == [1]

    pumped(handler, scenario)
    assert "connection closed" in caplog.text


def test_an_event_that_cannot_be_handled_takes_no_other_with_it(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        return OK

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, BODY, api_key=99)
        native.put(EVENT_APPENDED, 0, 77, 1000)
        native.request(2, BODY)
        await turns()
        assert replicas.appended == [(77, 1000, 0)]
        assert native.replies == {2: OK}

    pumped(handler, scenario)
    assert "could not be handled" in caplog.text


def test_other_events(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        raise AssertionError("never called")

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.put(EVENT_APPENDED, 0, 77, 1000)
        native.put(EVENT_OFFLINE, -5, 3, 1)
        native.put(EVENT_CAUGHT_UP, 0, 3, 2)
        native.put(EVENT_FOLLOWER, 1, 3, 500)
        native.put(EVENT_NOTICE, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6)
        await turns()
        assert replicas.appended == [(77, 1000, 0)]
        assert replicas.offline == [(3, 1, -5)]
        assert replicas.caught_up == [(3, 2)]
        assert replicas.followed == [(3, 1, 500)]

    pumped(handler, scenario)
    assert "notice 4 (and 6 more like it)" in caplog.text


def test_a_roll_carries_its_partition(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeNative, "take_notice", lambda *_: "orders-3 begins a segment: segment.ms is over")
    caplog.set_level("INFO")

    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        raise AssertionError("never called")

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.put(EVENT_NOTICE, NOTICE_ROLL, 4)
        await turns()

    pumped(handler, scenario)
    (record,) = [each for each in caplog.records if "begins a segment" in each.getMessage()]
    assert event_of(record) == ("roll", {"partition": "orders-3"})


def test_the_log_knows_whose_request_a_line_is_about(caplog: pytest.LogCaptureFixture) -> None:
    """While it is handled, after a wait and in its task; and which client and kind a notice of the data plane has."""
    peers: list[str] = []
    opened = asyncio.Event()

    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        peers.append(current_peer.get())
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future
        peers.append(current_peer.get())
        await opened.wait()
        peers.append(current_peer.get())
        return m.HeartbeatResponse()

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        peer = ffi.from_buffer(b"10.0.0.2")
        native.request(1, BODY)
        native.put(EVENT_NOTICE, 0, 4, 0, 4711, 0, int(ffi.cast("uintptr_t", peer)), 0, len(peer))
        await turns()
        opened.set()
        await turns()
        assert list(native.replies) == [1]

    pumped(handler, scenario)
    assert peers == ["10.0.0.1"] * 3
    (notice,) = [each for each in caplog.records if each.getMessage() == "notice 4"]
    assert caused_by("10.0.0.2", 4711).items() <= vars(notice).items()
    assert current_peer.get() == ""


def test_a_long_client_id_does_not_hide_what_was_wrong(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        raise AssertionError("never called")

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, b"\x01", client=b"x" * 32_767)
        await turns()
        assert native.closed == [1]

    pumped(handler, scenario)
    (line,) = caplog.records
    assert len(line.getMessage()) < 1024
    assert "bytes)', connection 1): request of API 12 version 4: malformed request" in line.getMessage()


@pytest.mark.parametrize("in_a_task", [False, True])
def test_stop_closes_what_waits_and_what_comes_after(in_a_task: bool) -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        if in_a_task:
            await asyncio.sleep(0)
        await asyncio.get_running_loop().create_future()

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, BODY)
        await turns()
        await pump.stop()
        assert native.closed == [1]
        native.request(2, BODY)
        await turns()
        assert native.closed == [1, 2]

    assert pumped(handler, scenario).replies == {}


def test_stop_closes_what_has_only_just_begun() -> None:
    pumps: list[EventPump] = []
    stops: list[asyncio.Task[None]] = []
    begun = asyncio.Event()

    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        # Its turn comes before that of the task which goes on with this request.
        stops.append(asyncio.get_running_loop().create_task(pumps[0].stop()))
        begun.set()
        await asyncio.sleep(0)
        await asyncio.get_running_loop().create_future()

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        pumps.append(pump)
        native.request(1, BODY)
        await begun.wait()
        await stops[0]
        assert native.closed == [1]

    assert pumped(handler, scenario).replies == {}


def test_a_client_without_id() -> None:
    async def handler(broker: Any, context: RequestContext, request: Any) -> Any:
        assert context.client_id is None
        return OK

    async def scenario(native: FakeNative, pump: EventPump, replicas: Replicas) -> None:
        native.request(1, BODY)
        event = native.events[0]
        native.events[0] = (*event[:8], NULL_LENGTH, *event[9:])
        await turns()
        assert native.replies == {1: OK}

    pumped(handler, scenario)
