"""`Scenario`: a load on a cluster while faults happen to its nodes one after another, and the verdict of the checker.

The caller owns the cluster, which is up; at the end of `run` it is down, because log dirs are compared. What happens to
which node is drawn from a seed. `python -m tests.harness.cluster.run` plays one.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.client.cluster import Cluster
from pybroker.client.errors import ClientError
from pybroker.cluster.layout import NodeKind
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.cluster.settings import TRANSACTION_PARTITIONS
from tests.harness.cluster.checker import Violation, check
from tests.harness.cluster.faults import FAULTS
from tests.harness.cluster.history import History
from tests.harness.cluster.load import CLIENT, Load, read_everything
from tests.harness.cluster.machines import Machines
from tests.harness.cluster.replicas import check_replicas
from tests.harness.cluster.transactions import TransactionLoad

TOPIC = "faults"
_TRANSACTION_TOPIC = "__transaction_state"
_HEALTHY_SECONDS = 120.0
_POLL_SECONDS = 0.1
_ADMIN_SECONDS = 60.0


#: A name of `FAULTS`, and the node that it happens to.
Happening = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Round:
    """Faults that happened together. `silence_seconds` is the longest time without an acknowledgement in a partition,
    from their begin until all was well again, which took `recovery_seconds` from their end: so long until the cluster
    was healthy, which `last_illness` was last in the way of, and until clients got on."""

    happenings: tuple[Happening, ...]
    hold_seconds: float
    silence_seconds: float
    healthy_seconds: float
    recovery_seconds: float
    last_illness: str

    def __str__(self) -> str:
        what = " and ".join(f"{name} of node {node_id}" for name, node_id in self.happenings)
        return (
            f"{what} for {self.hold_seconds:.1f} s: silence {self.silence_seconds:.1f} s, recovery "
            f"{self.recovery_seconds:.1f} s, healthy after {self.healthy_seconds:.1f} s ({self.last_illness})"
        )


@dataclass
class Report:
    """What was done and found."""

    rounds: list[Round] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    acknowledged_count: int = 0
    unknown_count: int = 0
    #: What producers were told of those, by text.
    unknown_errors: Counter[str] = field(default_factory=Counter)
    group_read_count: int = 0
    #: Members of the group that were left waiting by their client (`Load`).
    stuck_member_count: int = 0
    committed_count: int = 0
    aborted_count: int = 0

    def __str__(self) -> str:
        return (
            f"{self.acknowledged_count} records acknowledged, {self.unknown_count} unknown "
            f"({dict(self.unknown_errors)}), "
            f"{self.group_read_count} read by the group ({self.stuck_member_count} members stuck); "
            f"transactions: {self.committed_count} committed, {self.aborted_count} aborted; "
            f"{len(self.violations)} violations"
        )


class Scenario:
    """One run over one cluster."""

    def __init__(
        self,
        cluster: LocalCluster,
        faults: Sequence[str],
        *,
        rounds: int = 1,
        seed: int = 1,
        hold_seconds: tuple[float, float] = (3.0, 12.0),
        partitions: int = 4,
        topic_settings: Mapping[str, str] | None = None,
        load_settings: Mapping[str, Any] | None = None,
        with_transactions: bool = False,
        in_pairs: bool = False,
        machines: Machines | None = None,
        on_round: Callable[[Round], None] = lambda _: None,
    ) -> None:
        """Each of `faults`, a name of `FAULTS`, happens to a broker and to a controller in each of `rounds`.
        `load_settings` are parameters of `Load`. `with_transactions` adds transactional producers, who need a broker of
        Apache Kafka to coordinate them. `in_pairs` has something happen to a broker and to a controller at once, which
        takes half the time. `machines` are the cluster's if faults need some (`machines_for`)."""
        self._cluster = cluster
        self._machines = Machines(cluster) if machines is None else machines
        self._faults = list(faults)
        self._in_pairs = in_pairs
        self._rounds = rounds
        self._random = random.Random(seed)
        self._hold_seconds = hold_seconds
        self._places = [(TOPIC, partition) for partition in range(partitions)]
        self._topic_settings = dict(topic_settings or {})
        self._on_round = on_round
        self.history = History()
        self.report = Report()
        self.load = Load(cluster.layout.bootstrap, self._places, self.history, **(load_settings or {}))
        self.transactions = (
            TransactionLoad(cluster.layout.bootstrap, self._places, self.history) if with_transactions else None
        )

    def run(self) -> Report:
        """Play it. AssertionError or `ClusterError` when the cluster does not get well again."""
        with self.under_load():
            for happenings in self._plan():
                self._play(happenings)
        return self.judge()

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """While the load works; at the end it has stopped, and all is well."""
        self._create_topics()
        self.load.start()
        if self.transactions is not None:
            self.transactions.start()
        try:
            self.wait_for_progress()
            yield
        finally:
            if self.transactions is not None:
                self.transactions.stop()
            self.load.stop()
        wait_until_healthy(self._cluster)

    def wait_for_progress(self) -> None:
        """Return when everybody gets on. AssertionError when somebody does not."""
        self.load.wait_for_progress()
        if self.transactions is not None:
            self.transactions.wait_for_progress()

    def judge(self) -> Report:
        """Read everything, end the cluster, and check. The load has been stopped."""
        read_everything(self._cluster.layout.bootstrap, self._places, self.history)
        self._cluster.down()
        log_dirs = {node.node_id: self._cluster.log_dir(node.node_id) for node in self._cluster.layout.brokers}
        self.report.violations = check(self.history) + check_replicas(log_dirs, frozenset({TOPIC}))
        self.report.acknowledged_count = self.history.acknowledged_count()
        self.report.unknown_errors = Counter(
            text for numbers in self.history.unknown.values() for text in numbers.values()
        )
        self.report.unknown_count = self.report.unknown_errors.total()
        self.report.group_read_count = sum(
            len(reads) for places in self.history.group_reads.values() for reads in places.values()
        )
        self.report.stuck_member_count = self.history.stuck_member_count
        outcomes = [transaction.is_committed for transaction in self.history.transactions]
        self.report.committed_count = outcomes.count(True)
        self.report.aborted_count = outcomes.count(False)
        return self.report

    def _plan(self) -> list[tuple[Happening, ...]]:
        plan: list[tuple[Happening, ...]] = []
        for _ in range(self._rounds):
            of_brokers, of_controllers = (
                [(name, self._random.choice(nodes).node_id) for name in self._faults]
                for nodes in (self._cluster.layout.brokers, self._cluster.layout.controllers)
            )
            if self._in_pairs:
                for each in (of_brokers, of_controllers):
                    self._random.shuffle(each)
                plan += zip(of_brokers, of_controllers, strict=True)
            else:
                steps = of_brokers + of_controllers
                self._random.shuffle(steps)
                plan += [(step,) for step in steps]
        return plan

    def _play(self, happenings: tuple[Happening, ...]) -> None:
        hold_seconds = self._random.uniform(*self._hold_seconds)
        began = time.monotonic()
        for name, node_id in happenings:
            FAULTS[name].begin(self._machines, node_id, self._random)
        time.sleep(hold_seconds)
        for name, node_id in happenings:
            FAULTS[name].end(self._machines, node_id)
        ended = time.monotonic()
        last_illness = wait_until_healthy(self._cluster)
        healthy = time.monotonic()
        self.wait_for_progress()
        now = time.monotonic()
        silence_seconds = self.history.longest_silence(began, now)
        done = Round(happenings, hold_seconds, silence_seconds, healthy - ended, now - ended, last_illness)
        self.report.rounds.append(done)
        self._on_round(done)

    def _create_topics(self) -> None:
        replicas = min(3, len(self._cluster.layout.brokers))
        create_topic(self._cluster, TOPIC, len(self._places), replicas, self._topic_settings)
        if self.transactions is not None:
            create_transaction_topic(self._cluster)


def create_topic(cluster: LocalCluster, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
    """Create the topic, and return when every partition has all its replicas in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap, **CLIENT})
    topic = NewTopic(name, partitions, replicas, config=dict(settings))
    admin.create_topics([topic], operation_timeout=_ADMIN_SECONDS)[name].result(_ADMIN_SECONDS)
    wait_until_healthy(cluster, at_least=[name])


def create_transaction_topic(cluster: LocalCluster) -> None:
    """Have brokers of Apache Kafka, and no others, coordinate transactions: by the assignment of their topic."""
    coordinators = [node.node_id for node in cluster.layout.brokers if node.kind is NodeKind.JVM_BROKER]
    assert coordinators, "transactions take a broker of Apache Kafka"
    assignment = [
        [coordinators[(partition + each) % len(coordinators)] for each in range(len(coordinators))]
        for partition in range(TRANSACTION_PARTITIONS)
    ]
    settings = {"cleanup.policy": "compact", "compression.type": "uncompressed", "min.insync.replicas": "1"}
    admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap, **CLIENT})
    topic = NewTopic(_TRANSACTION_TOPIC, len(assignment), replica_assignment=assignment, config=settings)
    admin.create_topics([topic], operation_timeout=_ADMIN_SECONDS)[_TRANSACTION_TOPIC].result(_ADMIN_SECONDS)
    wait_until_healthy(cluster, at_least=[_TRANSACTION_TOPIC])


def wait_until_healthy(cluster: LocalCluster, at_least: Sequence[str] = ()) -> str:
    """Return when every broker is unfenced and tells clients that all partitions have a leader and all replicas in
    sync, those of the topics `at_least` among them; and with what was in the way of that last."""
    cluster.wait_until_ready(_HEALTHY_SECONDS)
    deadline = time.monotonic() + _HEALTHY_SECONDS
    last_illness = "all partitions were well when all brokers were"
    while True:
        ill = next(
            (text for node in cluster.layout.brokers if (text := _illness(node.host, node.port, at_least))), None
        )
        if ill is None:
            return last_illness
        last_illness = ill
        assert time.monotonic() < deadline, f"the cluster is not well after {_HEALTHY_SECONDS:g} s: {ill}"
        time.sleep(_POLL_SECONDS)


def _illness(host: str, port: int, at_least: Sequence[str]) -> str | None:
    try:
        with Cluster([(host, port)], timeout_seconds=5.0) as client:
            topics = client.metadata(None).topics
    except ClientError as error:
        return str(error)
    missing = set(at_least) - {str(topic.name) for topic in topics}
    if missing:
        return f"{host}:{port} does not know of {', '.join(sorted(missing))}"
    for topic in topics:
        for partition in topic.partitions:
            what = f"{host}:{port}: {topic.name}-{partition.partition_index}"
            if partition.leader_id < 0:
                return f"{what} has no leader"
            if set(partition.isr_nodes) != set(partition.replica_nodes):
                return f"{what}: replicas {partition.replica_nodes}, in sync {partition.isr_nodes}"
    return None
