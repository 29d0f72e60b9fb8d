"""A control loop that stands still: for longer than a session the data plane speaks for it, but not for good."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pybroker.cluster.local_cluster import LocalCluster
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.uuids import random_uuid
from pybroker.quorum.fetcher import FetcherSettings, MetadataFetcher
from pybroker.quorum.leader import LeaderFinder
from tests.harness.broker import BrokerProcess
from tests.harness.cluster.fixtures import CONTROLLER_VERSIONS, cluster_fixture

TIMEOUT_S = 60.0
CONTROLLER, NODE_ID = 100, 7
#: Longer than Kafka's default session; the last word of the data plane comes two thirds of one into it at the latest.
STALL_MS = 10_500


cluster = cluster_fixture(brokers=1, controller_versions=CONTROLLER_VERSIONS)


class Observer:
    """What the metadata has said of the broker so far: fenced or not, at each change."""

    def __init__(self, cluster: LocalCluster) -> None:
        node = cluster.layout.node(CONTROLLER)
        settings = FetcherSettings(99, cluster.layout.cluster_id, random_uuid(), TIMEOUT_S, 0.1, 1 << 20, 1 << 20)
        self.states: list[bool] = []
        self.fetcher = MetadataFetcher(settings, LeaderFinder([(node.host, node.port)]), self._on_image)

    def _on_image(self, _delta: object, image: MetadataImage) -> None:
        broker = image.cluster.brokers.get(NODE_ID)
        if broker is not None and self.states[-1:] != [broker.fenced]:
            self.states.append(broker.fenced)

    async def until(self, fenced: bool) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self.fetcher.until(lambda _: self.states[-1:] == [fenced])


@asynccontextmanager
async def observing(cluster: LocalCluster) -> AsyncIterator[Observer]:
    observer = Observer(cluster)
    running = asyncio.create_task(observer.fetcher.run())
    try:
        yield observer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_stall_is_covered_and_a_dead_control_loop_is_not(cluster: LocalCluster, tmp_path: Path) -> None:
    may_go_on = tmp_path / "go-on"
    overrides = {
        "process.roles": "broker",
        "node.id": str(NODE_ID),
        "controller.quorum.bootstrap.servers": cluster.layout.controller_bootstrap,
    }
    env = {"PYBROKER_HOLD_GIL_MS": str(STALL_MS), "PYBROKER_BLOCK_UNTIL": str(may_go_on)}
    module = "tests.harness.serve_holding_gil"

    async def run(broker: BrokerProcess) -> None:
        async with observing(cluster) as observer:
            await observer.until(False)
            before = list(observer.states)
            broker.process.signal(signal.SIGUSR1)
            await asyncio.sleep(STALL_MS / 1000 + 3)
            assert observer.states == before, "fenced, though its data plane was alive"
            broker.process.signal(signal.SIGUSR2)
            await observer.until(True)
            may_go_on.touch()
            await observer.until(False)

    with BrokerProcess(tmp_path / "data", overrides=overrides, env=env, module=module) as broker:
        asyncio.run(run(broker))
