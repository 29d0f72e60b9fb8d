"""The targets of one configuration in mode `none` on the machine that they were set on, in steady state.

Absolute figures, but for the latency of one small batch in flight, which is held against the same load with nothing
written and against Apache Kafka. Medians of five. The other side is what the metric names; with a limit of 1 it is the
target itself. Durable acknowledgements have targets of their own (`durable`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.peers.log_sections import LogBench
from bench.peers.machine import BareServer
from bench.peers.peer import Measurement, Peer
from bench.peers.report import Row
from bench.peers.run import Effort, Run

BARE_LIMIT = 2.5
KAFKA_P999_LIMIT = 0.5
REPETITIONS = 5


@dataclass(frozen=True)
class Target:
    """A load and the most that it may cost, or the least that it has to reach. `bytes` ends it, or else the time.

    `fill` is what a topic is filled with before, for loads that read.
    """

    name: str
    arguments: tuple[str, ...]
    mb_per_s: float | None = None
    cpu_s_per_gb: float | None = None
    p999_ms: float | None = None
    bytes: str | None = None
    fill: str | None = None

    def rows(self, found: list[Measurement]) -> list[Row]:
        """A row for each figure that is promised."""
        rows = []

        def add(metric: str, figure: Callable[[Measurement], float], bound: float | None, at_least: bool) -> None:
            if bound is not None:
                rows.append(Row(self.name, metric, median(map(figure, found)), bound, 1.0, at_least))

        add("MB/s", lambda one: one.mb_per_s, self.mb_per_s, True)
        add("CPU s/GB", lambda one: one.cpu_s_per_gb, self.cpu_s_per_gb, False)
        add("p99.9 ms", lambda one: one.latency_us("p99.9") / 1000, self.p999_ms, False)
        return rows


def _produce(connections: int, in_flight: int, batch: str, *more: str) -> tuple[str, ...]:
    counts = ("--connections", str(connections), "--in-flight", str(in_flight))
    return ("produce", *counts, "--batch-bytes", batch, *more)


def _fetch(max_bytes: str) -> tuple[str, ...]:
    return ("fetch", "--connections", "4", "--max-bytes", max_bytes)


# More than any ring keeps, and less: what is read comes from files that were read before, or from where it went first.
_FILE, _TAIL = "512m", "4m"
TARGETS = (
    Target("produce 256 KiB, 1 x 5, 20 GB", _produce(1, 5, "256k"), mb_per_s=1000, cpu_s_per_gb=0.45, bytes="19g"),
    Target("produce 256 KiB, 1 x 5, burst", _produce(1, 5, "256k"), mb_per_s=1200, p999_ms=5, bytes="2g"),
    Target("produce 256 KiB, 4 x 5", _produce(4, 5, "256k"), p999_ms=10, bytes="8g"),
    Target("produce 16 KiB, 4 x 5", _produce(4, 5, "16k"), cpu_s_per_gb=0.8),
    Target("produce 1 KiB, 16 x 1, 4 part.", _produce(16, 1, "1k", "--partitions", "4"), cpu_s_per_gb=10),
    Target("fetch 1 MiB x 4, tail", _fetch("1m"), cpu_s_per_gb=0.20, fill=_TAIL),
    Target("fetch 1 MiB x 4, files", _fetch("1m"), cpu_s_per_gb=0.20, fill=_FILE),
    Target("fetch 64 KiB x 4, tail", _fetch("64k"), cpu_s_per_gb=0.35, fill=_TAIL),
    Target("fetch 64 KiB x 4, files", _fetch("64k"), cpu_s_per_gb=0.35, fill=_FILE),
)


def _repetitions(effort: Effort) -> int:
    return REPETITIONS if effort.repetitions > 1 else 1


def _measure(bench: LogBench, run: Run, ours: Peer, target: Target, topic: str) -> list[Row]:
    effort, words = run.effort, (*target.arguments, "--topic", topic)
    repetitions = _repetitions(effort)
    if target.p999_ms:  # deletions of what the last load has left would be among the slowest thousandth
        run.settle(bench.data)
    if target.fill:
        filling = _produce(1, 5, "64k", "--topic", topic)
        ours.load(*filling, "--bytes", effort.fetch_fill if target.fill == _FILE else target.fill)
    ours.load(*words, "--seconds", str(effort.warmup_seconds))
    bounds = ("--seconds", str(effort.seconds))
    if target.bytes and repetitions > 1:
        bounds = ("--bytes", target.bytes)
    with run.alone(ours):
        found = [run.note(ours, target.name, ours.load(*words, *bounds)) for _ in range(repetitions)]
    ours.delete_topic(topic)
    return target.rows(found)


def _one_in_flight(run: Run, sides: Sequence[Peer | BareServer]) -> list[Row]:
    """All take turns: what a wake-up costs differs from one minute to the next."""
    effort, name = run.effort, "produce 1 KiB, 1 x 1"
    words = (*_produce(1, 1, "1k"), "--topic", "one")
    for side in sides:
        side.load(*words, "--seconds", str(effort.warmup_seconds))
    p50s_us: list[list[float]] = [[], [], []]
    p999s_us: list[list[float]] = [[], [], []]
    for _ in range(_repetitions(effort)):
        for number, side in enumerate(sides):
            with run.alone(side):
                found = run.note(side, name, side.load(*words, "--seconds", str(effort.seconds)))
            p50s_us[number].append(found.latency_us("p50"))
            p999s_us[number].append(found.latency_us("p99.9"))
    (ours_p50, _, bare_p50), (ours_p999, kafka_p999, _) = (list(map(median, each)) for each in (p50s_us, p999s_us))
    return [
        Row(name, "p50 us, bare", ours_p50, bare_p50, BARE_LIMIT),
        Row(name, "p99.9 us, kafka", ours_p999, kafka_p999, KAFKA_P999_LIMIT),
    ]


def targets(bench: LogBench) -> list[Row]:
    """All rows."""
    with bench.beside_floor() as (run, (ours, kafka, bare)):
        rows = []
        for number, target in enumerate(TARGETS):
            rows += _measure(bench, run, ours, target, f"target-{number}")
        return [*rows, *_one_in_flight(run, (ours, kafka, bare))]
