"""When an operation of the controller is answered: in effect here, or late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.server import served_controller
from pybroker.server.served_controller import ServedController


class Controller:
    forwarding_ranges: tuple[tuple[int, int, int], ...] | None = None

    async def perform(self, request: m.Message, version: int, origin: Origin) -> Any:
        assert origin.principal == "User:ANONYMOUS"
        return m.response_class(request.API_KEY or 0)(throttle_time_ms=version)


class Replicas:
    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def settled(self) -> None:
        await self.done.wait()


def served(replicas: Any) -> ServedController:
    controller: Any = Controller()
    return ServedController(controller, replicas)


def test_an_answer_waits_until_it_is_in_effect() -> None:
    async def run() -> None:
        replicas = Replicas()
        answer = asyncio.create_task(served(replicas).perform(m.CreateTopicsRequest(timeout_ms=60_000), 7, Origin()))
        await asyncio.sleep(0.01)
        assert not answer.done()
        replicas.done.set()
        assert (await answer).throttle_time_ms == 7

    asyncio.run(run())


@pytest.mark.parametrize("timeout_ms", [20, 0, -1])
def test_but_no_longer_than_the_client_does(timeout_ms: int) -> None:
    async def run() -> None:
        controller = served(Replicas())
        async with asyncio.timeout(50):
            created = await controller.perform(m.CreateTopicsRequest(timeout_ms=timeout_ms), 7, Origin())
            assert created.throttle_time_ms == 7
            await controller.perform(m.DeleteTopicsRequest(timeout_ms=timeout_ms), 6, Origin())
            await controller.perform(m.CreatePartitionsRequest(timeout_ms=timeout_ms), 3, Origin())

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_", "version"),
    [(m.IncrementalAlterConfigsRequest(), 1), (m.CreateTopicsRequest(timeout_ms=2**31 - 1), 7)],
    ids=["names no timeout", "a long one"],
)
def test_nor_longer_than_connections_do(request_: m.Message, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_controller, "_MOST_MS", 20)

    async def run() -> None:
        async with asyncio.timeout(50):
            answer = await served(Replicas()).perform(request_, version, Origin())
        assert answer.throttle_time_ms == version

    asyncio.run(run())


def test_the_first_step_of_an_answer_needs_no_task() -> None:
    async def run() -> None:
        replicas = Replicas()
        answers: asyncio.Queue[m.CreateTopicsResponse] = asyncio.Queue()

        def step() -> None:
            # As the dispatcher does, in a callback of the loop.
            handling = served(replicas).perform(m.CreateTopicsRequest(timeout_ms=60_000), 7, Origin())
            waits_for = handling.send(None)
            assert asyncio.isfuture(waits_for)
            replicas.done.set()
            waits_for.add_done_callback(lambda _: finish(handling))

        def finish(handling: Any) -> None:
            with pytest.raises(StopIteration) as done:
                handling.send(None)
            answers.put_nowait(done.value.value)

        asyncio.get_running_loop().call_soon(step)
        async with asyncio.timeout(50):
            assert (await answers.get()).throttle_time_ms == 7

    asyncio.run(run())


@pytest.mark.parametrize(("taken", "version"), [(None, 7), ((), 7), (((19, 2, 5),), 5), (((19, 2, 9),), 7)])
def test_a_topic_that_is_used_is_created_in_a_version_that_the_controller_takes(
    taken: tuple[tuple[int, int, int], ...] | None, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Controller, "forwarding_ranges", taken)
    assert served(Replicas()).newest_version(m.CreateTopicsRequest()) == version
