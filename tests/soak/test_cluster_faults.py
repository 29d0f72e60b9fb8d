"""Fifty rounds of every fault of a broker and of a controller, on clusters of pybroker's brokers and of both kinds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pybroker.cluster.local_cluster import LocalCluster
from pybroker.testing.cluster.faults import FAULTS
from pybroker.testing.cluster.scenario import Scenario

ROUNDS = 50


@pytest.mark.parametrize(("brokers", "jvm_brokers"), [(3, 0), (2, 2)], ids=["pybroker", "mixed"])
def test_nothing_promised_is_broken(tmp_path: Path, brokers: int, jvm_brokers: int) -> None:
    seed = random.SystemRandom().randrange(1, 1 << 31)
    print(f"seed {seed}")
    cluster = LocalCluster.make(
        tmp_path / "cluster", brokers=brokers, jvm_brokers=jvm_brokers, controllers=3, namespaces=True
    )
    try:
        cluster.up()
        scenario = Scenario(
            cluster,
            list(FAULTS),
            rounds=ROUNDS,
            seed=seed,
            hold_seconds=(1.0, 20.0),
            with_transactions=jvm_brokers > 0,
            on_round=lambda done: print(done, flush=True),
        )
        report = scenario.run()
    finally:
        cluster.delete()
    print(report)
    assert report.violations == []
