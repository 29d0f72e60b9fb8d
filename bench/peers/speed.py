"""Produce and fetch beside Apache Kafka: throughput, broker CPU per byte, latency, and fairness.

The shapes and their limits are the project's promise about speed; a change of one is a change of that promise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from bench.peers.peer import PROBE_PRIORITY, ROOT, Measurement, Peer
from bench.peers.report import Row
from bench.peers.run import Run, median


@dataclass(frozen=True)
class Shape:
    """A load, and at most what part of Kafka's figure ours may be (at least, for throughput). None: not asked."""

    name: str
    arguments: tuple[str, ...]
    throughput_limit: float | None = None
    cpu_limit: float | None = None
    p50_limit: float | None = None


def _produce(connections: int, in_flight: int, batch: str, *more: str) -> tuple[str, ...]:
    flags = ("--connections", str(connections), "--in-flight", str(in_flight), "--batch-bytes", batch)
    return ("produce", *flags, *more)


SHAPES = (
    Shape("produce 256 KiB, 1 x 5", _produce(1, 5, "256k"), throughput_limit=2.0, cpu_limit=0.4),
    Shape("produce 16 KiB, 4 x 5", _produce(4, 5, "16k"), cpu_limit=0.4),
    Shape("produce 1 KiB, 16 x 1, 4 part.", _produce(16, 1, "1k", "--partitions", "4"), cpu_limit=0.25),
    Shape("produce lz4 64 KiB, 1 x 5", _produce(1, 5, "64k", "--codec", "lz4"), cpu_limit=0.5),
    Shape("produce zstd 64 KiB, 1 x 5", _produce(1, 5, "64k", "--codec", "zstd"), cpu_limit=0.5),
    Shape("produce 1 KiB, one in flight", _produce(1, 1, "1k"), p50_limit=0.4),
)
FETCH = Shape("fetch 1 MiB, 4 x 1, resident", ("fetch", "--connections", "4", "--max-bytes", "1m"), cpu_limit=0.5)
# Between our own backends: figures of epoll over those of io_uring.
BACKEND_LIMIT = 1.5
HUGE_PRODUCER_LIMIT = 2.0


def _rows(shape: Shape, ours: list[Measurement], theirs: list[Measurement]) -> list[Row]:
    rows = []

    def add(metric: str, figure: str, limit: float | None, at_least: bool = False) -> None:
        if limit is None:
            return
        values = [
            median(side, lambda one: one.latency_us("p50") if figure == "p50" else float(getattr(one, figure)))
            for side in (ours, theirs)
        ]
        rows.append(Row(shape.name, metric, values[0], values[1], limit, at_least))

    add("MB/s", "mb_per_s", shape.throughput_limit, at_least=True)
    add("CPU s/GB", "cpu_s_per_gb", shape.cpu_limit)
    add("p50 us", "p50", shape.p50_limit)
    return rows


def _measure_shape(run: Run, shape: Shape, topic: str) -> dict[str, list[Measurement]]:
    effort = run.effort
    arguments = (*shape.arguments, "--topic", topic)
    bounds = ("--seconds", str(effort.seconds), "--bytes", "100g" if shape.arguments[0] == "fetch" else "4g")
    for peer in run.peers:
        peer.load(*arguments, "--seconds", str(effort.warmup_seconds))
    return run.alternate(shape.name, lambda peer: peer.load(*arguments, *bounds))


def throughput(run: Run) -> dict[str, list[Row]]:
    """All shapes over all peers. The first peer is ours, the second Kafka, a third our other backend."""
    sections: dict[str, list[Row]] = {"speed": [], "backends": []}
    for number, shape in enumerate((*SHAPES, FETCH)):
        topic = f"shape-{number}"
        if shape is FETCH:
            fill = ("produce", "--batch-bytes", "64k", "--in-flight", "5", "--bytes", run.effort.fetch_fill)
            for peer in run.peers:
                peer.load(*fill, "--topic", topic)
        results = list(_measure_shape(run, shape, topic).values())
        if len(results) > 1:
            sections["speed"] += _rows(shape, results[0], results[1])
        if len(results) > 2:
            against = Shape(shape.name, (), 1 / BACKEND_LIMIT, BACKEND_LIMIT)
            sections["backends"] += _rows(against, results[2], results[0])
        for peer in run.peers:
            peer.delete_topic(topic)
    return sections


def huge_producer(run: Run) -> list[Row]:
    """Measures how one producer without bounds affects the p99 of small ones on other partitions, per peer of ours."""
    effort = run.effort
    small = ("produce", "--topic", "small", "--batch-bytes", "1k", "--connections", "4", "--partitions", "4")
    # Many short turns: what a CPU takes to wake differs from one to the next.
    seconds = effort.seconds / 2
    paced = (*small, "--rate", "400", "--seconds", str(seconds), *PROBE_PRIORITY)
    # A kernel that does not preempt itself would give nobody a CPU while the huge producer's megabytes are copied.
    huge = ("produce", "--topic", "huge", "--batch-bytes", "768k", "--in-flight", "5", "--call-bytes", "32k")
    rows = []
    for peer in run.peers:
        quiet, loud = [], []
        for _ in range(2 * effort.repetitions + 1):
            with run.alone(peer):
                quiet.append(run.note(peer, "small producers, quiet", peer.load(*paced)))
                beside = peer.load_beside(*huge, "--seconds", str(seconds + 1))
                loud.append(run.note(peer, "small producers, beside a huge one", peer.load(*paced)))
                beside.finish()
            os.sync()
        if peer.name.startswith("pybroker"):
            name = f"huge producer ({peer.name})"
            p99s_us = [median(turns, lambda one: one.latency_us("p99")) for turns in (loud, quiet)]
            rows.append(Row(name, "p99 us of others", p99s_us[0], p99s_us[1], HUGE_PRODUCER_LIMIT))
        for topic in ("small", "huge"):
            peer.delete_topic(topic)
    return rows


def _rdkafka(peer: Peer, seconds: float, producers: int, partitions: int) -> Measurement:
    words = [sys.executable, "-m", "bench.peers.rdkafka_producers", "--bootstrap", peer.broker.bootstrap]
    words += ["--producers", str(producers), "--partitions", str(partitions), "--seconds", str(seconds)]
    before = peer.cpu_seconds()
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Measurement(json.loads(done.stdout), peer.cpu_seconds() - before)


def rdkafka_producers(run: Run) -> list[Row]:
    """Two hundred real producers over a thousand partitions at a fixed rate: not worse than Kafka."""
    quick = run.effort.repetitions == 1
    producers, partitions = (10, 50) if quick else (200, 1000)
    name = f"{producers} librdkafka producers"
    results = run.alternate(name, lambda peer: _rdkafka(peer, run.effort.rdkafka_seconds, producers, partitions))
    ours, theirs, *_ = results.values()
    costs = [median(side, lambda one: one.cpu_s_per_gb) for side in (ours, theirs)]
    p99s = [median(side, lambda one: one.latency_us("p99")) for side in (ours, theirs)]
    return [Row(name, "CPU s/GB", costs[0], costs[1], 1.0), Row(name, "p99 us", p99s[0], p99s[1], 1.0)]
