"""`LogDirWatch` tells the controller of log dirs whenever that may have become another answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, Provenance
from pybroker.protocol import messages as m
from pybroker.server.log_dir_watch import LogDirWatch

HERE = bytes([1]) * 16


class Told:
    """A controller that notes what it is told."""

    def __init__(self) -> None:
        self.config = BrokerConfig.load(None, ["node.id=1"])
        self.calls: list[tuple[tuple[bytes, ...], tuple[bytes, ...]]] = []

    async def change_directories(self, directories: tuple[bytes, ...], cordoned: tuple[bytes, ...]) -> None:
        self.calls.append((directories, cordoned))


def test_it_tells_after_changes_that_matter() -> None:
    async def told() -> list[int]:
        controller, directory = Told(), SimpleNamespace(directory_id=HERE, path="/data", failure=None)
        logs: Any = SimpleNamespace(directories=[directory], live=[directory])
        watched: Any = controller
        watch, counts = LogDirWatch(watched, logs, HERE, lambda _: None), []
        watch.start()
        records = (
            m.FeatureLevelRecord(name="metadata.version", feature_level=30),
            m.ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="1", name="cordoned.log.dirs", value="*"),
            m.ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name="t", name="segment.ms", value="1"),
            None,
        )
        for record in records:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            delta = MetadataDelta(empty_image("cluster"))
            if record is not None:
                delta.replay(record, 0)
            counts.append(len(controller.calls))
            watch.publish(delta, delta.apply(Provenance(1, 1, 0)))
        await watch.stop()
        counts.append(len(controller.calls))
        assert set(controller.calls) == {((HERE,), ())}
        return counts

    assert asyncio.run(told()) == [1, 2, 3, 3, 3]


def test_a_stop_does_not_wait_for_controllers_that_are_gone() -> None:
    class Gone(Told):
        async def change_directories(self, directories: tuple[bytes, ...], cordoned: tuple[bytes, ...]) -> None:
            await super().change_directories(directories, cordoned)
            await asyncio.Event().wait()

    async def stopped() -> list[str]:
        controller, directory = Gone(), SimpleNamespace(directory_id=HERE, path="/data", failure=None)
        logs: Any = SimpleNamespace(directories=[directory], live=[directory])
        watched: Any = controller
        reasons: list[str] = []
        watch = LogDirWatch(watched, logs, HERE, reasons.append)
        watch.start()
        await asyncio.sleep(0)
        assert len(controller.calls) == 1
        async with asyncio.timeout(5):
            await watch.stop()
        return reasons

    assert asyncio.run(stopped()) == []
