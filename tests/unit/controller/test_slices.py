"""Operations on many elements: accepted in slices of the loop, as a whole, and in an order."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from started_controller import create as _create
from started_controller import start as _start
from started_controller import stop as _stop

from pybroker.controller import controller as controller_module
from pybroker.controller.controller import Controller
from pybroker.protocol import messages as m
from tests.harness.look_counter import LookCounter

PARTITIONS = 3_000


def _creation(name: str, partition_count: int) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic])


async def _seen_sizes(controller: Controller, name: str) -> list[int]:
    """How many partitions the accepted image had in each round of the loop, until it is cancelled."""
    sizes: list[int] = []
    try:
        while True:
            topic = controller._accepted.topics.by_name.get(name)
            sizes.append(0 if topic is None else len(topic.partitions))
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        return sizes


def test_many_records_are_accepted_in_slices_and_seen_as_a_whole(tmp_path: Path) -> None:
    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        looks = LookCounter()
        watching = asyncio.create_task(_seen_sizes(controller, "large"))
        response = await controller.create_topics(_creation("large", PARTITIONS), 7)
        assert response.topics[0].error_code == 0
        watching.cancel()
        # Replayed and encoded, each record.
        looks.check(2 * PARTITIONS)
        assert set(await watching) == {0, PARTITIONS}
        assert len(controller.image.topics.by_name["large"].partitions) == PARTITIONS
        await _stop(controller, dirs)

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["topics", "partitions", "configs", "deletions"])
def test_what_takes_long_is_computed_by_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    computed_by: list[threading.Thread] = []

    def noted(operation: Any) -> Any:
        def run(*arguments: Any) -> Any:
            computed_by.append(threading.current_thread())
            return operation(*arguments)

        return run

    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        many = range(2_000)
        await _create(controller, "t")
        for name in ("create_topics", "create_partitions", "incremental_alter_configs", "delete_topics"):
            monkeypatch.setattr(controller_module, name, noted(getattr(controller_module, name)))
        if kind == "topics":
            await controller.create_topics(_creation("large", PARTITIONS), 7)
        elif kind == "partitions":
            wanted = m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=PARTITIONS, assignments=None)
            await controller.create_partitions(m.CreatePartitionsRequest(topics=[wanted]))
        elif kind == "configs":
            resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource
            value = m.IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", value="5")
            rows = [resource(resource_type=2, resource_name=f"t{number}", configs=[value]) for number in many]
            await controller.incremental_alter_configs(m.IncrementalAlterConfigsRequest(resources=rows))
        else:
            await controller.delete_topics(m.DeleteTopicsRequest(topic_names=[f"t{number}" for number in many]), 5)
        await _stop(controller, dirs)

    asyncio.run(run())
    assert computed_by and threading.main_thread() not in computed_by


def test_operations_that_come_meanwhile_see_what_was_accepted_before_them(tmp_path: Path) -> None:
    """Two that want the same name, and one of another, while the first is accepted in slices."""

    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        large = asyncio.create_task(controller.create_topics(_creation("same", PARTITIONS), 7))
        # Until it is being accepted.
        while not controller._accepting.locked():  # noqa: ASYNC110 - it is, in a moment
            await asyncio.sleep(0)
        same, other = await asyncio.gather(_create(controller, "same"), _create(controller, "other"))
        assert (await large).topics[0].error_code == 0
        assert (same, other) == (36, 0), "TOPIC_ALREADY_EXISTS"
        assert len(controller.image.topics.by_name["same"].partitions) == PARTITIONS
        await _stop(controller, dirs)
        again, dirs = await _start(tmp_path)
        assert {name: len(each.partitions) for name, each in again.image.topics.by_name.items()} == {
            "same": PARTITIONS,
            "other": 1,
        }
        await _stop(again, dirs)

    asyncio.run(run())


def test_what_others_change_all_the_time_is_computed_while_they_wait(tmp_path: Path) -> None:
    """A change each time that the thread has computed: it ends all the same, and is right."""

    async def run() -> None:
        controller, dirs = await _start(tmp_path)
        large = asyncio.create_task(controller.create_topics(_creation("large", PARTITIONS), 7))
        names = 0
        while not large.done():
            assert await _create(controller, f"small-{names}") == 0
            names += 1
        assert (await large).topics[0].error_code == 0
        assert len(controller.image.topics.by_name) == names + 1
        await _stop(controller, dirs)

    asyncio.run(run())
