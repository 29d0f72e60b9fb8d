"""The control plane beside Apache Kafka: rate, broker CPU per request, and what it does to produce latency.

Rates are closed loop. For the latency promise, ours is then loaded at half of Kafka's rate, open loop, beside a quiet
producer. A broker that keeps the promised rate must keep the data plane's p99 with it.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from functools import partial

from bench.peers import stalls
from bench.peers.peer import PROBE_PRIORITY, Measurement, Peer
from bench.peers.report import Row
from bench.peers.run import Effort, Run, median

RATE_LIMIT = 0.5
CPU_LIMIT = 2.0
PRODUCE_P99_LIMIT = 1.5


@dataclass(frozen=True)
class ControlShape:
    """A load of one API; `timed` shapes run for a time and can be paced, the others once."""

    name: str
    arguments: tuple[str, ...]
    timed: bool = True


def shapes(effort: Effort) -> tuple[ControlShape, ...]:
    """The four loads; Metadata first creates its topics."""
    commit = ("offset-commit", "--topic", "commit", "--partitions", "10", "--connections", "8")
    heartbeat = ("heartbeat", "--connections", "16", "--groups", "4")
    metadata = ("metadata", "--topic", "meta", "--topics", str(effort.topic_count), "--connections", "4")
    join = ("join", "--connections", str(effort.member_count))
    return (
        ControlShape("OffsetCommit of 10 partitions", commit),
        ControlShape("Heartbeat", heartbeat),
        ControlShape(f"Metadata of {effort.topic_count} topics", metadata),
        ControlShape(f"{effort.member_count} members join", join, timed=False),
    )


def _quiet_producer(seconds: float) -> tuple[str, ...]:
    flags = ("--batch-bytes", "16k", "--connections", "4", "--rate", "400", "--seconds", str(seconds))
    return ("produce", "--topic", "quiet", *flags, *PROBE_PRIORITY)


def _produce_p99_under(peer: Peer, shape: ControlShape, rate: float, seconds: float) -> float:
    """p99 of the quiet producer while the control load runs beside it."""
    producer = peer.load_beside(*_quiet_producer(seconds))
    if shape.timed:
        peer.load(*shape.arguments, "--rate", f"{rate:.0f}", "--seconds", str(seconds))
    while producer.running() and not shape.timed:
        begun_s = time.monotonic()
        burst = peer.load(*shape.arguments)
        time.sleep(max(0.0, begun_s + burst.requests / rate - time.monotonic()))
    return stalls.latency_us(producer.finish(), "p99")


def _produce_p99s(peer: Peer, shape: ControlShape, rate: float, run: Run) -> tuple[float, float]:
    """p99 of the quiet producer beside the control load and without it: medians of many short turns, as one stall of
    the disk decides the p99 of one turn. The other brokers, which have a load behind them to tidy up, stand still."""
    seconds = run.effort.seconds / 2
    under_us, quiet_us = [], []
    for _ in range(2 * run.effort.repetitions + 1):
        os.sync()
        with run.alone(peer):
            quiet = run.note(peer, "quiet producer", peer.load(*_quiet_producer(seconds)))
        quiet_us.append(quiet.latency_us("p99"))
        with run.alone(peer):
            under_us.append(_produce_p99_under(peer, shape, rate, seconds))
    return statistics.median(under_us), statistics.median(quiet_us)


def _load(arguments: tuple[str, ...], peer: Peer) -> Measurement:
    return peer.load(*arguments)


def control_plane(run: Run) -> list[Row]:
    """All rows. The first peer is ours, the second Kafka."""
    ours = run.peers[0]
    rows = []
    seconds = str(run.effort.seconds)
    for shape in shapes(run.effort):
        arguments = (*shape.arguments, "--seconds", seconds) if shape.timed else shape.arguments
        for peer in run.peers:
            peer.load(*arguments)
        results = run.alternate(shape.name, partial(_load, arguments))
        sides = list(results.values())[:2]
        rates = [median(side, lambda one: one.requests_per_s) for side in sides]
        costs = [median(side, lambda one: one.cpu_us_per_request) for side in sides]
        rows.append(Row(shape.name, "requests/s", rates[0], rates[1], RATE_LIMIT, at_least=True))
        rows.append(Row(shape.name, "CPU us/request", costs[0], costs[1], CPU_LIMIT))
        under_us, quiet_us = _produce_p99s(ours, shape, rates[1] * RATE_LIMIT, run)
        rows.append(Row(shape.name, "produce p99 us", under_us, quiet_us, PRODUCE_P99_LIMIT))
    return rows
