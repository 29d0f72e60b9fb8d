"""Compares the cost of three replicas with Apache Kafka's. A cluster of ours and one of its own take turns at the same
loads. Each has three brokers under one of Apache Kafka's controllers.

One partition, which broker 1 leads and the others follow, `acks=all`, all replicas in sync. CPU is that of each
broker's process, so leader and followers are told apart; a follower's is the mean of both. Brokers have no bound on
memory, and share CPUs and disk with each other and the load.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub does not re-export

from bench.peers.adapters import kafka
from bench.peers.log_sections import LogBench
from bench.peers.peer import COMMON_OVERRIDES, PROBE_PRIORITY, Measurement, run_pbload
from bench.peers.report import Row
from pybroker.cluster.jars import KAFKA_VERSION, Jvm
from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.scenario import wait_until_healthy
from tests.harness.process import cpu_seconds

CPU_LIMIT = 1 / 3
P99_LIMIT = 0.5
_NO_LIMIT = float("inf")
_TOPIC = "replicated"
_LEADER, _FOLLOWERS = 1, (2, 3)
_LARGE = ("--batch-bytes", "256k", "--in-flight", "5")
_ADMIN_SECONDS = 60
_SECONDS = 3.0
#: It goes on while the last two loads were this much cheaper than all before, but not for ever.
_STILL_FALLING, _WARM_UPS = 0.95, 30
#: Kafka's defaults, where clusters for tests take less.
_OVERRIDES = {"num.network.threads": "3", "num.io.threads": "8", "background.threads": "10"}


@dataclass(frozen=True)
class Load:
    """A load, and the most that ours may cost of what Kafka does: CPU of each kind of broker, and p99."""

    name: str
    words: tuple[str, ...]
    cpu_limit: float = _NO_LIMIT
    p99_limit: float = _NO_LIMIT


LOADS = (
    Load("RF 3, 256 KiB, 1 x 5", _LARGE, CPU_LIMIT, P99_LIMIT),
    Load("RF 3, 256 KiB at 200/s", (*_LARGE, "--rate", "200", *PROBE_PRIORITY), p99_limit=P99_LIMIT),
    Load("RF 3, 16 KiB, 4 x 5", ("--batch-bytes", "16k", "--connections", "4", "--in-flight", "5")),
)


@dataclass
class Found:
    """One load on one side, all repetitions."""

    loads: list[Measurement] = field(default_factory=list)  # CPU is the leader's
    follower_cpu_s_per_gb: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Medians by metric."""
        return {
            "MB/s": statistics.median(one.mb_per_s for one in self.loads),
            "leader CPU s/GB": statistics.median(one.cpu_s_per_gb for one in self.loads),
            "follower CPU s/GB": statistics.median(self.follower_cpu_s_per_gb),
            "p50 us": statistics.median(one.latency_us("p50") for one in self.loads),
            "p99 us": statistics.median(one.latency_us("p99") for one in self.loads),
        }


class ReplicatedPeer:
    """A cluster of one kind, with its topic; the caller has made it and ends it."""

    def __init__(self, name: str, cluster: LocalCluster, pbload: Path) -> None:
        self.name = name
        self._cluster = cluster
        self._pbload = pbload

    def start(self) -> None:
        """Bring it up, and make the topic."""
        self._cluster.up()
        admin = AdminClient({"bootstrap.servers": self._cluster.layout.bootstrap, "log_level": 2})
        topic = NewTopic(_TOPIC, 1, replica_assignment=[[_LEADER, *_FOLLOWERS]])
        admin.create_topics([topic])[_TOPIC].result(_ADMIN_SECONDS)
        wait_until_healthy(self._cluster, at_least=[_TOPIC])

    def cpu_seconds(self, node_id: int) -> float:
        """CPU time of that broker so far."""
        pid = self._cluster.process_id(node_id)
        if pid is None:
            raise RuntimeError(f"broker {node_id} of {self.name} has ended: {self._cluster.output_tail(node_id)}")
        return cpu_seconds(pid)

    def _followers_cpu(self) -> float:
        return sum(self.cpu_seconds(node_id) for node_id in _FOLLOWERS)

    def produce(self, *words: str) -> tuple[Measurement, float]:
        """A load on the leader, and a follower's CPU seconds. Every acknowledged record is on all three."""
        port = str(self._cluster.layout.node(_LEADER).port)
        before = self._followers_cpu()
        command = [str(self._pbload), "produce", "--topic", _TOPIC, "--acks", "all", *words, "--port", port]
        found = run_pbload(command, lambda: self.cpu_seconds(_LEADER))
        return found, (self._followers_cpu() - before) / len(_FOLLOWERS)


@contextmanager
def _peers(bench: LogBench) -> Iterator[tuple[ReplicatedPeer, ReplicatedPeer]]:
    bench.data.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-replication-", dir=bench.data))
    own = {"pybroker.io.backend": bench.backend, "pybroker.append.engine": bench.engine}
    overrides = {**COMMON_OVERRIDES, **_OVERRIDES}
    made: list[LocalCluster] = []
    try:
        # Controllers are Kafka's on both sides, and ignore what they do not know.
        made.append(LocalCluster.make(directory / "ours", brokers=3, overrides={**overrides, **own}))
        made.append(LocalCluster.make(directory / "kafka", jvm_brokers=3, overrides=overrides))
        made[1].jvm = Jvm(kafka.HEAP_MEGABYTES, (f"-Xms{kafka.HEAP_MEGABYTES}m", *kafka.JAVA_OPTIONS))
        ours = ReplicatedPeer(f"pybroker-{bench.backend}", made[0], bench.pbload)
        theirs = ReplicatedPeer("kafka", made[1], bench.pbload)
        bench.facts |= {ours.name: own, theirs.name: {"version": KAFKA_VERSION}}
        for peer in (ours, theirs):
            peer.start()
        yield ours, theirs
    finally:
        for cluster in made:
            cluster.delete()
        shutil.rmtree(directory)


def _warm_up(peer: ReplicatedPeer, words: Sequence[str], seconds: float, most: int) -> None:
    """Load it until its CPU per byte no longer falls: five JVMs on few CPUs compile for a minute, and what is measured
    before then is the compiler."""
    costs: list[float] = []
    while len(costs) < most and (len(costs) < 3 or min(costs[-2:]) < _STILL_FALLING * min(costs[:-2])):
        measured, follower_cpu_s = peer.produce(*words, "--seconds", str(seconds))
        gigabytes = measured.load["payload_bytes"] / 1e9
        costs.append((measured.cpu_seconds + follower_cpu_s) / gigabytes)
    print(f"{peer.name}: CPU s/GB while it warms up: {', '.join(f'{cost:.2f}' for cost in costs)}", flush=True)


def _measure(bench: LogBench, peers: Sequence[ReplicatedPeer], load: Load) -> list[Found]:
    effort, found = bench.effort, [Found() for _ in peers]
    seconds = min(effort.seconds, _SECONDS)
    for peer in peers:
        _warm_up(peer, load.words, seconds, _WARM_UPS if effort.repetitions > 1 else 1)
    for _ in range(effort.repetitions):
        for peer, side in zip(peers, found, strict=True):
            measured, follower_cpu_s = peer.produce(*load.words, "--seconds", str(seconds))
            os.sync()
            side.loads.append(measured)
            side.follower_cpu_s_per_gb.append(follower_cpu_s / (measured.load["payload_bytes"] / 1e9))
            row = {"peer": peer.name, "shape": load.name, "cpu_s": measured.cpu_seconds, "load": measured.load}
            bench.raw.append({**row, "follower_cpu_s": follower_cpu_s})
    return found


def replication(bench: LogBench) -> list[Row]:
    """All rows. Where a limit is infinite nothing is promised."""
    rows = []
    with _peers(bench) as peers:
        for load in LOADS:
            ours, theirs = (each.figures() for each in _measure(bench, peers, load))
            limits = {"leader CPU s/GB": load.cpu_limit, "follower CPU s/GB": load.cpu_limit, "p99 us": load.p99_limit}
            for metric, value in ours.items():
                limit, at_least = (0.0, True) if metric == "MB/s" else (limits.get(metric, _NO_LIMIT), False)
                rows.append(Row(load.name, metric, value, theirs[metric], limit, at_least))
    return rows
