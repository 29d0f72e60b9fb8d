"""The whole client matrix over a cluster of three brokers, where everything is there three times, and two have to have
a record before it is acknowledged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cluster.local_cluster import LocalCluster
from pybroker.testing.clients.driver import CLIENTS, VARIANTS
from pybroker.testing.clients.scenario import Scenario
from pybroker.testing.cluster.scenario import wait_until_healthy

RECORDS_PER_VARIANT = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster.make(tmp_path_factory.mktemp("cluster") / "cluster", brokers=3)
    try:
        made.up()
        yield made
    finally:
        made.delete()


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
@pytest.mark.parametrize("producer", CLIENTS)
def test_everyone_reads(producer: str, cluster: LocalCluster, tmp_path: Path) -> None:
    for client in CLIENTS.values():
        client.check()
    topic = f"matrix-{producer}"
    scenario = Scenario(cluster.layout.bootstrap, topic, tmp_path, RECORDS_PER_VARIANT)
    others = [client for name, client in CLIENTS.items() if name != producer]
    scenario.run([(CLIENTS[producer], variant) for variant in VARIANTS], others)
    wait_until_healthy(cluster, at_least=["__consumer_offsets"])
