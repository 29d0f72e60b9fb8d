"""Large requests: in slices, small ones first, few unpacked at a time; and what deadlines wait for."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from test_event_pump import METADATA, FakeNative, Replicas

from pybroker import turns
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server import large_requests
from pybroker.server.api import Api, RequestContext
from pybroker.server.event_pump import EventPump
from pybroker.server.large_requests import HUGE_BYTES, LARGE_BYTES, drop_message
from pybroker.turns import SLICE_NS, Turns

HEARTBEAT, JOIN_GROUP, DELETE_RECORDS = 12, 11, 21
SMALL = m.HeartbeatRequest(group_id="g", generation_id=3, member_id="m").encode(4)
OK = m.HeartbeatResponse(error_code=0).encode(4)

Handler = Callable[[Any, RequestContext, Any], Coroutine[Any, Any, Any]]
Scenario = Callable[[FakeNative, EventPump], Coroutine[Any, Any, None]]


class Clock:
    """Goes on by a tenth of a slice with every look; counts the looks."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> int:
        self.looks += 1
        return self.looks * (SLICE_NS // 10)


def pumped(handlers: dict[int, Handler], scenario: Scenario) -> tuple[FakeNative, Clock]:
    async def run() -> tuple[FakeNative, Clock]:
        native, clock = FakeNative(), Clock()
        turns.install(Turns(asyncio.get_running_loop(), clock))
        apis: Any = {
            METADATA: Api(m.MetadataRequest, 0, 13, handlers.get(METADATA, _metadata)),
            HEARTBEAT: Api(m.HeartbeatRequest, 0, 4, handlers.get(HEARTBEAT, _heartbeat)),
            JOIN_GROUP: Api(m.JoinGroupRequest, 0, 9, handlers.get(JOIN_GROUP, _never)),
            DELETE_RECORDS: Api(m.DeleteRecordsRequest, 0, 2, handlers.get(DELETE_RECORDS, _never)),
        }
        services: Any = SimpleNamespace(replicas=Replicas())
        pump = EventPump(native, apis, services, ["PLAINTEXT"])  # type: ignore[arg-type]  # a double
        pump.start()
        pump.open()
        try:
            async with asyncio.timeout(9):
                await scenario(native, pump)
        finally:
            await pump.stop()
            pump.drain()
            native.close()
        return native, clock

    return asyncio.run(run())


async def _heartbeat(_broker: Any, _context: RequestContext, _request: Any) -> Any:
    return OK


async def _never(_broker: Any, _context: RequestContext, _request: Any) -> Any:
    raise AssertionError("nobody calls it")


async def _metadata(_broker: Any, _context: RequestContext, request: Any) -> Any:
    row = m.MetadataResponse.MetadataResponseTopic
    rows = [row(error_code=3, name=topic.name) async for topic in turns.in_slices(request.topics)]
    return m.MetadataResponse(cluster_id="c", topics=rows)


def metadata(count: int, *, size_bytes: int = 0) -> bytes:
    """A Metadata request of version 4 with so many topics, and as large as asked for by bytes behind it."""
    topic = m.MetadataRequest.MetadataRequestTopic
    body = m.MetadataRequest(topics=[topic(name=f"topic-{number:06}") for number in range(count)]).encode(4)
    return body + bytes(max(size_bytes - len(body), 0))


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 - bounded by `pumped`
        await asyncio.sleep(0)


def test_a_large_request_is_answered_and_small_ones_go_ahead_of_it() -> None:
    order: list[int] = []

    async def heartbeat(_broker: Any, context: RequestContext, _request: Any) -> Any:
        order.append(context.connection_id)
        return OK

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        native.request(1, metadata(20_000), api_key=METADATA, connection=1)
        await asyncio.sleep(0)
        for handle in range(2, 102):
            native.request(handle, SMALL, connection=handle)
            await until(lambda handle=handle: handle in native.replies)
            assert 1 not in native.replies, "in slices between them"
        await until(lambda: 1 in native.replies)

    native, _ = pumped({HEARTBEAT: heartbeat}, scenario)
    answer, _ = m.MetadataResponse.decode(4, native.replies[1])
    assert [each.name for each in answer.topics] == [f"topic-{number:06}" for number in range(20_000)]
    assert order == list(range(2, 102))


def test_no_round_of_the_loop_has_more_than_its_slices() -> None:
    """Six clients that ask for 20,000 topics each: decoded, answered, encoded and freed."""
    most_looks = 0

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        nonlocal most_looks
        clock: Any = turns.current()._clock_ns
        for handle in range(1, 7):
            native.request(handle, metadata(20_000), api_key=METADATA, connection=handle)
        seen = 0
        while len(native.replies) < 6:
            await asyncio.sleep(0)
            most_looks, seen = max(most_looks, clock.looks - seen), clock.looks

    native, clock = pumped({}, scenario)
    assert len(native.replies) == 6
    assert clock.looks > 6 * 20_000 // 100
    # Ten looks make a slice. A round has that of events and that of one who waited; each may look once too often.
    assert most_looks <= 2 * 10 + 6


def test_of_huge_requests_one_is_unpacked_at_a_time_and_smaller_ones_are_not_behind_them() -> None:
    unpacked: list[int] = []
    most: list[list[int]] = []
    go_on: dict[int, asyncio.Future[None]] = {}

    async def handler(_broker: Any, context: RequestContext, _request: Any) -> Any:
        number = context.connection_id
        unpacked.append(number)
        most.append(sorted(unpacked))
        go_on[number] = asyncio.get_running_loop().create_future()
        await go_on[number]
        unpacked.remove(number)
        return m.MetadataResponse(cluster_id="c")

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        for handle in (1, 2, 3):
            native.request(handle, metadata(1, size_bytes=HUGE_BYTES + 1), api_key=METADATA, connection=handle)
        await until(lambda: 1 in go_on)
        native.request(4, metadata(1, size_bytes=LARGE_BYTES + 1), api_key=METADATA, connection=4)
        await until(lambda: 4 in go_on)
        go_on[4].set_result(None)
        await until(lambda: 4 in native.replies)
        for handle in (1, 2, 3):
            assert unpacked == [handle]
            go_on[handle].set_result(None)
            await until(lambda handle=handle: handle in native.replies)
            await until(lambda handle=handle: unpacked or handle == 3)

    native, _ = pumped({METADATA: handler}, scenario)
    assert most == [[1], [1, 4], [2], [3]]
    assert len(native.replies) == 4


def test_who_waits_too_long_for_others_gives_its_place_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_requests, "_PLACE_S", 0.02)
    forever: list[asyncio.Future[None]] = []

    async def delete(_broker: Any, _context: RequestContext, _request: Any) -> Any:
        forever.append(asyncio.get_running_loop().create_future())
        await forever[0]

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        body = m.DeleteRecordsRequest().encode(2)
        native.request(1, body + bytes(HUGE_BYTES), api_key=DELETE_RECORDS, version=2, connection=1)
        await until(lambda: forever)
        native.request(2, metadata(1, size_bytes=HUGE_BYTES + 1), api_key=METADATA, connection=2)
        await asyncio.sleep(0)
        assert 2 not in native.replies
        await until(lambda: 2 in native.replies)

    native, _ = pumped({DELETE_RECORDS: delete}, scenario)
    assert native.closed == [1], "when the pump stops"


def test_a_member_that_waits_for_others_keeps_no_place_and_deadlines_wait_until_it_does() -> None:
    joined: list[asyncio.Future[None]] = []
    heard: list[str] = []

    async def join(_broker: Any, _context: RequestContext, _request: Any) -> Any:
        heard.append("join")
        joined.append(asyncio.get_running_loop().create_future())
        await joined[-1]
        return m.JoinGroupResponse(error_code=ErrorCode.NONE)

    async def heartbeat(_broker: Any, _context: RequestContext, _request: Any) -> Any:
        heard.append("heartbeat")
        return OK

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        body = m.JoinGroupRequest(group_id="g", member_id="m", protocol_type="consumer").encode(5) + bytes(HUGE_BYTES)
        native.request(1, metadata(5_000, size_bytes=2 * HUGE_BYTES), api_key=METADATA, connection=1)
        native.request(2, body, api_key=JOIN_GROUP, version=5, connection=2)
        native.request(3, SMALL, connection=3)
        pump.after_received(lambda: heard.append("judged"))
        native.request(4, SMALL, connection=4)
        await until(lambda: "judged" in heard)
        assert not joined[0].done()
        # Its place is free again.
        native.request(5, metadata(1, size_bytes=2 * HUGE_BYTES), api_key=METADATA, connection=5)
        await until(lambda: {1, 3, 4, 5} <= native.replies.keys())
        joined[0].set_result(None)
        await until(lambda: 2 in native.replies)

    pumped({JOIN_GROUP: join, HEARTBEAT: heartbeat}, scenario)
    assert heard.index("heartbeat") < heard.index("judged")
    assert heard.index("join") < heard.index("judged")


def test_a_deadline_is_judged_after_all_that_was_received_and_before_what_comes_then() -> None:
    heard: list[int | str] = []

    async def heartbeat(_broker: Any, context: RequestContext, _request: Any) -> Any:
        heard.append(context.connection_id)
        return OK

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        for handle in range(1, 300):
            native.request(handle, SMALL, connection=handle)
        pump.after_received(lambda: heard.append("judged"))
        assert heard == []
        native.request(300, SMALL, connection=300)
        await until(lambda: len(heard) == 301)

    pumped({HEARTBEAT: heartbeat}, scenario)
    assert heard == [*range(1, 300), "judged", 300]


def test_bodies_wait_in_copies_as_far_as_these_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_requests, "MOST_WAITING_BYTES", 5 * HUGE_BYTES)
    release: list[asyncio.Future[None]] = []

    async def handler(_broker: Any, _context: RequestContext, _request: Any) -> Any:
        release.append(asyncio.get_running_loop().create_future())
        await release[-1]
        return m.MetadataResponse(cluster_id="c")

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        for handle in (1, 2, 3, 4):
            native.request(handle, metadata(1, size_bytes=2 * HUGE_BYTES), api_key=METADATA, connection=handle)
            event = list(native.events[-1])
            event[3] = 1  # it lies in a receive buffer
            native.events[-1] = tuple(event)  # type: ignore[assignment]  # 14 numbers
            await until(lambda: not native.events)
        await until(lambda: release)
        for _ in range(200):
            await asyncio.sleep(0)
        # One is unpacked, two are copied, and one stays where it is.
        assert sorted(native.taken_from) == [1, 2, 3]
        for number in range(4):
            await until(lambda number=number: len(release) > number)
            release[number].set_result(None)
        await until(lambda: len(native.replies) == 4)
        assert sorted(native.taken_from) == [1, 2, 3, 4]

    pumped({METADATA: handler}, scenario)


@pytest.mark.parametrize("is_large", [False, True])
def test_what_is_malformed_costs_its_connection(is_large: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(native: FakeNative, pump: EventPump) -> None:
        count = (1_000_001).to_bytes(4, "big")
        native.request(1, count + b"\0\1t" * (1_000_001 if is_large else 10), api_key=METADATA, connection=1)
        await until(lambda: native.closed)

    native, _ = pumped({METADATA: _never}, scenario)
    assert native.closed == [1] and native.replies == {}
    assert "1000001 elements" in caplog.text


def test_an_answer_that_cannot_be_encoded_ends_its_request(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(_broker: Any, _context: RequestContext, _request: Any) -> Any:
        row = m.MetadataResponse.MetadataResponseTopic
        return m.MetadataResponse(cluster_id="c", topics=[row(name="t")] * 20_000 + [row(name=5)])  # type: ignore[arg-type]

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        native.request(1, metadata(1, size_bytes=2 * LARGE_BYTES), api_key=METADATA)
        await until(lambda: native.closed)

    native, _ = pumped({METADATA: handler}, scenario)
    assert native.closed == [1] and native.replies == {}


def test_a_small_request_with_a_long_answer_is_encoded_in_slices() -> None:
    async def handler(_broker: Any, _context: RequestContext, _request: Any) -> Any:
        row = m.MetadataResponse.MetadataResponseTopic
        rows = [row(name=f"t{number}") async for number in turns.in_slices(range(30_000))]
        return m.MetadataResponse(cluster_id="c", topics=rows)

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        native.request(1, metadata(1), api_key=METADATA, connection=1)
        count = 1
        while 1 not in native.replies:
            count += 1
            native.request(count, SMALL, connection=count)
            await until(lambda count=count: count in native.replies)
            if native.parts.get(1):
                break
        assert 1 not in native.replies and native.parts[1], "a part of it, and others are served"
        await until(lambda: 1 in native.replies)
        answer, _ = m.MetadataResponse.decode(4, native.replies[1])
        assert len(answer.topics) == 30_000

    pumped({METADATA: handler}, scenario)


def test_a_full_collection_waits_while_something_is_unpacked() -> None:
    thresholds: list[tuple[int, int, int]] = []

    async def handler(_broker: Any, _context: RequestContext, _request: Any) -> Any:
        thresholds.append(gc.get_threshold())
        return m.MetadataResponse(cluster_id="c")

    before = gc.get_threshold()

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        native.request(1, metadata(1, size_bytes=2 * LARGE_BYTES), api_key=METADATA)
        await until(lambda: 1 in native.replies and gc.get_threshold() == before)

    pumped({METADATA: handler}, scenario)
    assert thresholds == [large_requests._QUICK_COLLECTIONS]
    assert gc.get_threshold() == before


def test_stop_closes_those_that_wait_and_those_that_are_unpacked() -> None:
    async def handler(_broker: Any, _context: RequestContext, _request: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        for handle in (1, 2, 3):
            native.request(handle, metadata(1, size_bytes=2 * HUGE_BYTES), api_key=METADATA, connection=handle)
        for _ in range(50):
            await asyncio.sleep(0)

    native, _ = pumped({METADATA: handler}, scenario)
    assert sorted(native.closed) == [1, 2, 3]


def test_what_a_handler_may_have_kept_is_not_emptied() -> None:
    topic = m.CreateTopicsRequest.CreatableTopic(
        name="t",
        assignments=[
            m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
            for _ in range(100)
        ],
    )
    kept = topic.assignments[7]
    request = m.CreateTopicsRequest(topics=[topic])
    asyncio.run(drop_message(request))
    assert request.topics == [] and topic.assignments == []
    assert kept.broker_ids == [1, 2, 3]


def test_thousands_of_handlers_that_one_event_wakes_go_on_in_slices() -> None:
    """Members that wait for one rebalance, or commits in one batch."""
    woken: asyncio.Future[None]
    count, most_per_round = 1_000, 0

    async def join(_broker: Any, _context: RequestContext, _request: Any) -> Any:
        # One each: whoever is cancelled cancels nobody else.
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        woken.add_done_callback(lambda _: waits.set_result(None))
        await waits
        # Its answer takes a tenth of a slice.
        turns.current().is_over()
        return m.JoinGroupResponse(error_code=ErrorCode.NONE)

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        nonlocal woken, most_per_round
        woken = asyncio.get_running_loop().create_future()
        body = m.JoinGroupRequest(group_id="g", protocol_type="consumer").encode(9)
        for handle in range(1, count + 1):
            native.request(handle, body, api_key=JOIN_GROUP, version=9, connection=handle)
        await until(lambda: len(woken._callbacks or ()) == count)  # type: ignore[attr-defined]  # of asyncio's
        woken.set_result(None)
        seen = 0
        while len(native.replies) < count:
            await asyncio.sleep(0)
            most_per_round, seen = max(most_per_round, len(native.replies) - seen), len(native.replies)

    native, _ = pumped({JOIN_GROUP: join}, scenario)
    assert len(native.replies) == count
    assert most_per_round <= 2 * 10


def test_a_huge_body_is_given_back_by_a_thread() -> None:
    given_back_by: list[threading.Thread] = []

    async def scenario(native: FakeNative, pump: EventPump) -> None:
        taken = native.taken

        def note(handle: int) -> None:
            given_back_by.append(threading.current_thread())
            taken(handle)

        native.taken = note  # type: ignore[method-assign]
        # So much waits in copies already that this one stays where it was received.
        pump._large._waiting_bytes = large_requests.MOST_WAITING_BYTES
        native.request(1, metadata(1, size_bytes=HUGE_BYTES + 1), api_key=METADATA, is_held=True)
        await until(lambda: 1 in native.replies)

    native, _ = pumped({}, scenario)
    assert native.taken_from == [1]
    assert threading.main_thread() not in given_back_by
