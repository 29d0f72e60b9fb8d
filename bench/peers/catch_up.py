"""Measures how a consumer that reads history affects producers and consumers at the tail.

Each broker lives in a cgroup of 1.5 GB that is full of page cache, with its disk reads throttled. A paced load of
producers, each with a consumer at the end of its partition, runs alone and beside a consumer that goes through cold
history. Ours is held to its own figures without history; Apache Kafka's ratio stands beside. Needs root.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.peers import stalls
from bench.peers.log_sections import LogBench
from bench.peers.peer import PROBE_PRIORITY, Confinement, Peer
from bench.peers.report import Row

LATENCY_LIMIT = 1.5
HISTORY_LIMIT = 0.9
MEMORY_BYTES = 1_500_000_000
# No part of Kafka's heap is page cache, so a smaller heap is kinder to it than the 1 GiB of its start script.
_KAFKA_HEAP_MEGABYTES = 512
_SPARE_BYTES = 64 << 20
_HISTORY_PARTITIONS = 2
# Applies to pybroker, which has limits. The p99.9 of a paced load is some 16 requests, and one stall of the disk
# decides it.
_REPETITIONS = 5


@dataclass(frozen=True)
class Throttle:
    """The device's throttle, and its name in the rows."""

    name: str
    bytes_per_s: int
    reads_per_s: int | None = None


THROTTLES = (
    Throttle("200 MB/s", 200_000_000),
    Throttle("120 MB/s, 200 IOPS", 120_000_000, 200),
)


@dataclass
class Figures:
    """The figures of all repetitions on one broker under one throttle: quantiles in microseconds, alone and beside
    history."""

    alone: dict[str, list[float]]
    beside: dict[str, list[float]]
    history_mb_per_s: list[float]

    def add(self, side: dict[str, list[float]], load: dict[str, Any]) -> None:
        """Note a run of the paced load."""
        for name, kind in (("produce", "produce_latency"), ("tail", "latency")):
            for quantile in ("p99", "p99.9"):
                side.setdefault(f"{name} {quantile}", []).append(stalls.latency_us(load, quantile, kind))


def _paced(seconds: float) -> tuple[str, ...]:
    flags = ("--connections", "4", "--batch-bytes", "16k", "--rate", "1000", "--seconds", str(seconds))
    return ("tail", "--topic", "live", *flags, *PROBE_PRIORITY)


def _history(seconds: float) -> tuple[str, ...]:
    # Taken from the socket bit by bit, as what a client's kernel does for a large copy is not the broker's.
    flags = ("--partitions", str(_HISTORY_PARTITIONS), "--max-bytes", "1m", "--call-bytes", "32k")
    return ("fetch", "--topic", "history", "--connections", str(_HISTORY_PARTITIONS), *flags, "--seconds", str(seconds))


def _forget_history(peer: Peer) -> None:
    """Cold again, whoever has read it before."""
    os.sync()
    segments = list(peer.directory.rglob("history-*/*"))
    if not segments:
        raise RuntimeError(f"{peer.name} has no history under {peer.directory}")
    for segment in segments:
        if segment.is_file():
            descriptor = os.open(segment, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _fill_memory(peer: Peer) -> bool:
    """With what else a broker writes, until every further page takes another's place. False: this broker writes past
    the page cache."""
    if peer.cgroup is None:
        return False
    before = peer.cgroup.memory_bytes()
    missing = MEMORY_BYTES - before
    if missing <= _SPARE_BYTES:
        return True
    load = ("produce", "--topic", "filler", "--batch-bytes", "256k", "--in-flight", "5")
    peer.load(*load, "--bytes", str(missing))
    os.sync()
    return peer.cgroup.memory_bytes() - before > missing // 2


def _measure(bench: LogBench, peer: Peer, throttle: Throttle, seconds: float, repetitions: int) -> Figures:
    figures = Figures({}, {}, [])
    fills = True
    for _ in range(repetitions):
        _forget_history(peer)
        fills = fills and _fill_memory(peer)
        if peer.cgroup:
            peer.cgroup.throttle_reads(peer.directory, throttle.bytes_per_s, throttle.reads_per_s)
        alone = peer.load(*_paced(seconds)).load
        reader = peer.load_beside(*_history(seconds + 1))
        beside = peer.load(*_paced(seconds)).load
        history = reader.finish()
        if peer.cgroup:
            peer.cgroup.throttle_reads(peer.directory, 0)
        figures.add(figures.alone, alone)
        figures.add(figures.beside, beside)
        figures.history_mb_per_s.append(float(history["mb_per_s"]))
        for shape, load in (("alone", alone), ("beside history", beside), ("history", history)):
            bench.raw.append({"peer": peer.name, "shape": f"{throttle.name}, {shape}", "load": load})
    return figures


def _start(bench: LogBench, ours: bool) -> Peer:
    # Nothing rolls or goes while it is measured.
    overrides = {"log.retention.bytes": "-1", "log.retention.check.interval.ms": "300000"}
    return bench.start(
        ours, overrides, confinement=Confinement(MEMORY_BYTES, with_io=True), heap_megabytes=_KAFKA_HEAP_MEGABYTES
    )


def _figures(bench: LogBench, ours: bool) -> list[Figures]:
    effort = bench.effort
    peer = _start(bench, ours)
    try:
        fill = ("produce", "--topic", "history", "--partitions", str(_HISTORY_PARTITIONS), "--batch-bytes", "64k")
        peer.load(*fill, "--in-flight", "5", "--bytes", str(effort.history_bytes))
        peer.load(*_paced(effort.warmup_seconds))
        # So that the paced load runs for as long as there is history, but for a share that may come from memory.
        seconds = max(effort.seconds, effort.history_bytes / THROTTLES[0].bytes_per_s)
        repetitions = _REPETITIONS if ours else effort.repetitions
        if effort.repetitions == 1:
            seconds, repetitions = effort.seconds, 1
        return [_measure(bench, peer, throttle, seconds, repetitions) for throttle in THROTTLES]
    finally:
        peer.close()


def _rows(name: str, figures: Sequence[Figures], limit: float) -> list[Row]:
    rows = []
    for throttle, one in zip(THROTTLES, figures, strict=True):
        for metric, beside in one.beside.items():
            medians = statistics.median(beside), statistics.median(one.alone[metric])
            rows.append(Row(f"{name}, {throttle.name}", f"{metric} us", *medians, limit))
    return rows


def catch_up(bench: LogBench) -> list[Row]:
    """Beside history over without it, for both; and how fast history is read."""
    ours, theirs = (_figures(bench, each) for each in (True, False))
    rows = _rows("ours", ours, LATENCY_LIMIT) + _rows("Kafka", theirs, float("inf"))
    for throttle, mine, other in zip(THROTTLES, ours, theirs, strict=True):
        speeds = statistics.median(mine.history_mb_per_s), statistics.median(other.history_mb_per_s)
        rows.append(Row(f"history, {throttle.name}", "MB/s", *speeds, HISTORY_LIMIT, at_least=True))
    return rows
