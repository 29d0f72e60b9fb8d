"""`play_rounds`: a cluster of its own, made, put through rounds of faults under load, judged, and taken away again.

What went wrong stays: the directory of the cluster, with logs and output of all nodes, is left where it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pybroker.cluster.local_cluster import LocalCluster
from pybroker.protocol.kafka_version import KAFKA_VERSION
from tests.harness.cluster.faults import FAULTS, machines_for
from tests.harness.cluster.scenario import Report, Round, Scenario

#: A session that ends soon, so that a fault need not last long to outlive it.
SESSION_SECONDS = 3.0
SHORT_SESSIONS: Mapping[str, str] = {
    "broker.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "broker.heartbeat.interval.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Composition:
    """Which nodes a cluster has. Transactions are coordinated by brokers of Apache Kafka."""

    brokers: int
    jvm_brokers: int
    controllers: int = 3
    overrides: Mapping[str, str] = field(default_factory=lambda: SHORT_SESSIONS)
    controller_version: str = KAFKA_VERSION

    @property
    def has_coordinators(self) -> bool:
        """Of transactions."""
        return self.jvm_brokers > 0


def play_rounds(
    directory: Path,
    composition: Composition,
    *,
    rounds: int,
    seed: int,
    faults: Sequence[str] = tuple(FAULTS),
    hold_seconds: tuple[float, float] = (0.5, 2 * SESSION_SECONDS),
    in_pairs: bool = True,
    with_transactions: bool | None = None,
    on_round: Callable[[Round], None] = lambda _: None,
) -> Report:
    """Play them, in `directory`, which must not exist. Transactions are part of it where there are coordinators, unless
    told otherwise. Fails as `Scenario` does."""
    cluster = LocalCluster.make(
        directory,
        brokers=composition.brokers,
        jvm_brokers=composition.jvm_brokers,
        controllers=composition.controllers,
        overrides=composition.overrides,
        namespaces=any(FAULTS[name].needs_namespaces for name in faults),
        controller_version=composition.controller_version,
    )
    is_sound = False
    with machines_for(cluster, faults) as machines:
        try:
            cluster.up()
            scenario = Scenario(
                cluster,
                faults,
                rounds=rounds,
                seed=seed,
                hold_seconds=hold_seconds,
                in_pairs=in_pairs,
                with_transactions=composition.has_coordinators if with_transactions is None else with_transactions,
                machines=machines,
                on_round=on_round,
            )
            report = scenario.run()
            is_sound = not report.violations
        finally:
            if is_sound:
                cluster.delete()
            else:
                cluster.down()
    return report
