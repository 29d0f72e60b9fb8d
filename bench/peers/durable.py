"""Durable acknowledgements: beside the disk itself, beside the same load with nothing written, and beside Apache Kafka.

Both brokers get `flush.messages=1`, which is `pybroker.durability=acks` here. Disk, floor and brokers take turns, the
others standing still meanwhile, and medians are compared. The data of large batches is deleted before small ones are
measured. The other side is what the metric names; with a limit of 1 it is the promise itself.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.peers.log_sections import LogBench
from bench.peers.machine import BareServer, group_syncs_us, quantile, synced_writes_us
from bench.peers.peer import Measurement, Peer
from bench.peers.report import Row
from bench.peers.run import Run

LARGE_MB_PER_S = 800.0
LARGE_CPU_S_PER_GB = 0.45
MEDIUM_CPU_S_PER_GB = 1.1
# A multiple of the median of the disk's synced write.
ONE_IN_FLIGHT_LIMIT = 2.0
# The one under way when a request comes, and its own.
SYNCS_WAITED_FOR = 2.0
KAFKA_RATE_LIMIT = 5.0
CONNECTIONS = 64
PARTITIONS, QUICK_PARTITIONS = (1, 4, 64, 1000), (1, 16)
DURABLE = ("--topic-config", "flush.messages=1")


def _load(run: Run, side: Peer | BareServer, name: str, words: tuple[str, ...]) -> Measurement:
    with run.alone(side):
        return run.note(side, name, side.load(*words, "--seconds", str(run.effort.seconds), "--bytes", "4g"))


def _large(run: Run, ours: Peer) -> list[Row]:
    """Batches that fill the disk: ours against fixed bounds."""
    flags = ("--in-flight", "5", *DURABLE)
    loads = {
        "durable 256 KiB, 1 x 5": ("produce", "--topic", "large", "--batch-bytes", "256k", *flags),
        "durable 16 KiB, 4 x 5": ("produce", "--topic", "medium", "--batch-bytes", "16k", "--connections", "4", *flags),
    }
    found = {}
    for name, words in loads.items():
        ours.load(*words, "--seconds", str(run.effort.warmup_seconds))
        found[name] = [_load(run, ours, name, words) for _ in range(run.effort.repetitions)]
    large, medium = loads
    costs = {name: median(one.cpu_s_per_gb for one in each) for name, each in found.items()}
    return [
        Row(large, "MB/s", median(one.mb_per_s for one in found[large]), LARGE_MB_PER_S, 1.0, at_least=True),
        Row(large, "CPU s/GB", costs[large], LARGE_CPU_S_PER_GB, 1.0),
        Row(medium, "CPU s/GB", costs[medium], MEDIUM_CPU_S_PER_GB, 1.0),
    ]


def _one_in_flight(run: Run, ours: Peer, data: Path) -> list[Row]:
    """One batch of a block at a time, beside one synced write of a block at a time."""
    effort, name = run.effort, "durable 4 KiB, 1 x 1"
    words = ("produce", "--topic", "one", "--batch-bytes", "4k", *DURABLE)
    ours.load(*words, "--seconds", str(effort.warmup_seconds))
    disk_us, ours_us = [], []
    for _ in range(effort.repetitions):
        with run.alone(None):
            disk_us.append(median(synced_writes_us(ours.pbload, data, effort.seconds / 2)))
        ours_us.append(_load(run, ours, name, words).latency_us("p50"))
    return [Row(name, "p50 us, disk", median(ours_us), median(disk_us), ONE_IN_FLIGHT_LIMIT)]


def _many_small(run: Run, sides: tuple[Peer, Peer, BareServer], data: Path, partitions: int) -> list[Row]:
    """Many producers with one small batch in flight each: ours, Apache Kafka, and the floor."""
    ours, kafka, bare = sides
    effort, name = run.effort, f"durable 1 KiB, {CONNECTIONS} x 1, {partitions} part."
    counts = ("--connections", str(CONNECTIONS), "--partitions", str(partitions))
    words = ("produce", "--topic", f"small-{partitions}", "--batch-bytes", "1k", *counts, *DURABLE)
    run.settle(data)
    for side in sides:
        side.load(*words, "--seconds", str(effort.warmup_seconds))
    bounds_us, ours_us, rates = [], [], []
    for _ in range(effort.repetitions):
        with run.alone(None):
            if partitions == 1:
                syncs_us = synced_writes_us(ours.pbload, data, effort.seconds / 2)
            else:
                syncs_us = group_syncs_us(ours.pbload, data, partitions, effort.seconds / 2)
        floor, mine, theirs = (_load(run, side, name, words) for side in (bare, ours, kafka))
        bounds_us.append(floor.latency_us("p99") + SYNCS_WAITED_FOR * quantile(syncs_us, 0.99))
        ours_us.append(mine.latency_us("p99"))
        rates.append((mine.requests_per_s, theirs.requests_per_s))
    my_rate, their_rate = (median(rate[side] for rate in rates) for side in (0, 1))
    return [
        Row(name, "p99 us, bound", median(ours_us), median(bounds_us), 1.0),
        Row(name, "requests/s", my_rate, their_rate, KAFKA_RATE_LIMIT, at_least=True),
    ]


def durable(bench: LogBench) -> list[Row]:
    """All rows; what the other side is, its metric says, and Apache Kafka for requests/s."""
    effort = bench.effort
    with bench.beside_floor() as (run, (ours, kafka, bare)):
        rows = [*_large(run, ours), *_one_in_flight(run, ours, bench.data)]
        for partitions in PARTITIONS if effort.repetitions > 1 else QUICK_PARTITIONS:
            rows += _many_small(run, (ours, kafka, bare), bench.data, partitions)
        return rows
