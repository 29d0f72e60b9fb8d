"""Clusters for tests: up when the test has them, gone after it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from pybroker.cluster.local_cluster import LocalCluster
from pybroker.cluster.settings import RELEASES
from pybroker.protocol.kafka_version import KAFKA_VERSION

#: Versions of the controllers that clusters are tested with: the reference first, then the last one before 4.0.
CONTROLLER_VERSIONS = tuple(RELEASES)

needs_kafka = pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
"""For tests, and modules of them, that start nodes of Apache Kafka."""


@contextmanager
def running_cluster(
    directory: Path,
    *,
    brokers: int = 0,
    jvm_brokers: int = 0,
    controllers: int = 1,
    overrides: Mapping[str, str] | None = None,
    racks: Sequence[str] = (),
    controller_version: str = KAFKA_VERSION,
) -> Iterator[LocalCluster]:
    """A new cluster as of `LocalCluster.make`, which serves; deleted at the end."""
    made = LocalCluster.make(
        directory,
        brokers=brokers,
        jvm_brokers=jvm_brokers,
        controllers=controllers,
        overrides=overrides,
        racks=racks,
        controller_version=controller_version,
    )
    try:
        made.up()
        yield made
    finally:
        made.delete()


def cluster_fixture(
    *,
    scope: Literal["function", "module"] = "function",
    compositions: Mapping[str, tuple[int, int]] | None = None,
    brokers: int = 0,
    jvm_brokers: int = 0,
    controllers: int = 1,
    overrides: Mapping[str, str] | None = None,
    controller_versions: Sequence[str] = (KAFKA_VERSION,),
) -> Any:
    """A fixture: such a cluster, or one after the other of those `compositions`, which are brokers of ours and of
    Apache Kafka by the name of the test's parameter. Each comes once with controllers of each of these versions."""
    found = compositions or {"": (brokers, jvm_brokers)}
    clusters = {
        "-".join(filter(None, [name, f"controllers {version}"])): (numbers, version)
        for version in controller_versions
        for name, numbers in found.items()
    }

    @pytest.fixture(scope=scope, params=clusters.values(), ids=list(clusters))
    def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
        (ours, others), version = request.param
        with running_cluster(
            tmp_path_factory.mktemp("cluster") / "cluster",
            brokers=ours,
            jvm_brokers=others,
            controllers=controllers,
            overrides=overrides,
            controller_version=version,
        ) as made:
            yield made

    return cluster
