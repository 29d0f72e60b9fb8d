"""Sections about the log on disk beside Apache Kafka: unclean restart, compaction, and what upkeep costs producers.

They start brokers of their own, one at a time, since they kill them and fill their disks. Limits are part of the
project's promise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.peers import dirty_log, stalls
from bench.peers.adapters import kafka, pybroker
from bench.peers.machine import BareServer
from bench.peers.peer import USUAL, Confinement, Measurement, Peer, Site
from bench.peers.report import Row
from bench.peers.run import Effort, Run
from tests.harness.differential.side import LATEST, Side

RECOVERY_LIMIT = 0.2
COMPACTION_LIMIT = 0.5
PRODUCE_P999_LIMIT = 2.0
_MIB = 1 << 20
_WAIT_SECONDS = 1200.0
_COMPACTION_SHARE = 0.3
_DELETION_ATTEMPTS = 5
_RETENTION_CHECK_MS = "7000"
_OLD = "old"


@dataclass
class LogBench:
    """The brokers that each section needs, and how to start them. `backend` is our I/O backend, `engine` our append
    engine."""

    pbload: Path
    data: Path
    backend: str
    with_cgroup: bool
    effort: Effort
    engine: str = "auto"
    # For the saved report: what was started, and what sections measured.
    facts: dict[str, Mapping[str, str]] = field(default_factory=dict)
    raw: list[dict[str, Any]] = field(default_factory=list)

    def start(
        self,
        ours: bool,
        overrides: Mapping[str, str],
        *,
        with_cgroup: bool | None = None,
        confinement: Confinement = USUAL,
        heap_megabytes: int = kafka.HEAP_MEGABYTES,
    ) -> Peer:
        """A broker of one kind; the heap is Kafka's."""
        cgroup = self.with_cgroup if with_cgroup is None else with_cgroup
        site = Site(self.pbload, self.data, cgroup, confinement)
        if ours:
            peer = pybroker.start(site, backend=self.backend, engine=self.engine, overrides=overrides)
        else:
            peer = kafka.start(site, overrides=overrides, heap_megabytes=heap_megabytes)
        self.facts[peer.name] = dict(peer.facts)
        return peer

    @contextmanager
    def beside_floor(self) -> Iterator[tuple[Run, tuple[Peer, Peer, BareServer]]]:
        """Ours and Apache Kafka, filled, and a server that writes nothing."""
        with ExitStack() as stack:
            ours = self.start(True, {})
            stack.callback(ours.close)
            theirs = self.start(False, {})
            stack.callback(theirs.close)
            bare = stack.enter_context(BareServer(self.pbload))
            run = Run([ours, theirs], self.effort, self.raw)
            run.fill()
            yield run, (ours, theirs, bare)


# ---- recovery --------------------------------------------------------------------------------------------------------


def recovery_overrides(effort: Effort) -> dict[str, str]:
    """Settings with which nothing is flushed before the kill."""
    # Nothing rolls, so nothing of it is flushed by that.
    segment_bytes = effort.recovery_bytes + 64 * _MIB
    return {
        "log.segment.bytes": str(segment_bytes),
        "log.retention.bytes": "-1",
        # Apache Kafka's own: a broker that was killed is not let in again before its session has ended.
        "broker.session.timeout.ms": "9000",
        # Neither writes a recovery point before the kill.
        "log.flush.offset.checkpoint.interval.ms": "3600000",
        "log.flush.start.offset.checkpoint.interval.ms": "3600000",
        "num.recovery.threads.per.data.dir": str(os.cpu_count() or 2),
    }


def _restart_seconds(bench: LogBench, ours: bool) -> float:
    """Fill, SIGKILL, and the time until every partition tells its end again. The page cache stays as the kill left it,
    so both read from memory what fits there."""
    effort = bench.effort
    return restart_seconds(bench.start(ours, recovery_overrides(effort), with_cgroup=False), effort)


def restart_seconds(peer: Peer, effort: Effort) -> float:
    """The same of a broker that was just started with such settings; closes it."""
    side = Side(peer.name, peer.broker)
    try:
        topics = [f"recovery-{number}" for number in range(effort.recovery_partitions)]
        side.create({topic: {} for topic in topics})
        for topic in topics:
            load = ("produce", "--topic", topic, "--batch-bytes", "64k", "--in-flight", "5")
            peer.load(*load, "--bytes", str(effort.recovery_bytes))
        ends = side.list_offsets(dict.fromkeys(topics, LATEST))
        side.stop(kill=True)
        started = time.monotonic()
        side.start()
        found = side.list_offsets(dict.fromkeys(topics, LATEST))
        seconds = time.monotonic() - started
        if found != ends:
            raise RuntimeError(f"{peer.name} lost records in a kill: ends {found}, before {ends}")
        return seconds
    finally:
        side.close()
        peer.close()


def recovery(bench: LogBench) -> list[Row]:
    """Unclean restart of equal dirs with nothing flushed."""
    ours, theirs = (_restart_seconds(bench, each) for each in (True, False))
    size = bench.effort.recovery_partitions * bench.effort.recovery_bytes / (1 << 30)
    name = f"unclean restart, {size:.3g} GiB, {bench.effort.recovery_partitions} part."
    return [Row(name, "seconds", ours, theirs, RECOVERY_LIMIT)]


# ---- compaction ------------------------------------------------------------------------------------------------------


def _compact(bench: LogBench, ours: bool) -> dirty_log.Compaction:
    peer = bench.start(ours, dirty_log.OVERRIDES)
    side = Side(peer.name, peer.broker)
    try:
        log = dirty_log.DirtyLog(side, _segment_bytes(bench.effort))
        log.fill(bench.effort.compaction_bytes)
        before_bytes, ends = log.size_bytes(), log.end_offsets()
        os.sync()
        cpu, started = peer.cpu_seconds(), time.monotonic()
        log.start_compaction()
        log.wait(_WAIT_SECONDS)
        done = dirty_log.Compaction(
            time.monotonic() - started, peer.cpu_seconds() - cpu, before_bytes, log.size_bytes()
        )
        if log.end_offsets() != ends:
            raise RuntimeError(f"{peer.name}: compaction moved the ends of the logs")
        return done
    finally:
        side.close()
        peer.close()


def _segment_bytes(effort: Effort) -> int:
    return max(_MIB, min(256 * _MIB, effort.compaction_bytes // 16))


def compaction(bench: LogBench) -> list[Row]:
    """The same dirty log cleaned by both."""
    ours, theirs = (_compact(bench, each) for each in (True, False))
    name = f"compaction of {bench.effort.compaction_bytes / (1 << 30):.3g} GiB zstd, 20 % live"
    if not 0.9 < (ours.after_bytes + 1) / (theirs.after_bytes + 1) < 1.1:
        raise RuntimeError(f"not the same was kept: {ours}, Apache Kafka {theirs}")
    return [
        Row(name, "CPU seconds", ours.cpu_seconds, theirs.cpu_seconds, COMPACTION_LIMIT),
        Row(name, "seconds", ours.seconds, theirs.seconds, COMPACTION_LIMIT),
    ]


# ---- producers beside retention and compaction -----------------------------------------------------------------------


def _quiet_producer(seconds: float) -> tuple[str, ...]:
    # So many requests that a thousandth of them are some.
    flags = (
        "--batch-bytes",
        "4k",
        "--connections",
        "4",
        "--rate",
        "1000",
        "--seconds",
        str(seconds),
        "--priority",
        "1",
    )
    return ("produce", "--topic", "quiet", "--partitions", "4", *flags)


def _p999(measurement: Measurement) -> float:
    return measurement.latency_us("p99.9")


def _beside(peer: Peer, seconds: float, work: Callable[[], None]) -> tuple[float, float]:
    """p99.9 of the quiet producer while `work` goes on, and for what share of its time it did."""
    producer = peer.load_beside(*_quiet_producer(seconds))
    time.sleep(0.2)
    started = time.monotonic()
    work()
    worked_seconds = time.monotonic() - started
    p999 = stalls.latency_us(producer.finish(), "p99.9")
    return p999, min(1.0, worked_seconds / seconds)


def _wait_for_deletion(side: Side, topic: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(side.segments(topic)) > count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{side.name}: retention has not come down to {count} segments of {topic}")
        time.sleep(0.02)


def _p999_while_deleting(peer: Peer, side: Side, effort: Effort, seconds: float) -> float:
    """A change of configuration is synced, which is not what is measured: it comes before the producer runs. When the
    next check of retention comes too soon after it, it is tried with another log."""
    for _ in range(_DELETION_ATTEMPTS):
        side.create({_OLD: {"segment.bytes": str(_MIB)}})
        size_bytes = (effort.deleted_segments + 5) * _MIB
        peer.load("produce", "--topic", _OLD, "--batch-bytes", "64k", "--bytes", str(size_bytes))
        os.sync()
        side.configure({_OLD: {"retention.bytes": "1"}})
        left = len(side.segments(_OLD)) - effort.deleted_segments
        p999 = _beside(peer, seconds, partial(_wait_for_deletion, side, _OLD, left))[0] if left > 0 else None
        side.delete([_OLD])
        if p999 is not None:
            return p999
    raise RuntimeError(f"{side.name}: retention was quicker than the producer {_DELETION_ATTEMPTS} times")


def _p999_while_compacting(peer: Peer, effort: Effort, seconds: float, log: dirty_log.DirtyLog) -> float:
    p999, share = _beside(peer, seconds, lambda: _compact_beside(log))
    if share < _COMPACTION_SHARE and effort.repetitions > 1:
        raise RuntimeError(f"compaction ran for {share:.0%} of the producer's time only; it needs more to do")
    return p999


def _upkeep_round(bench: LogBench) -> tuple[list[float], list[float], float]:
    """p99.9 of producers at rest, while segments are deleted, and, once, while logs are compacted. Filling the logs
    takes long, and the disk is left to finish that before anything is measured."""
    effort = bench.effort
    peer = bench.start(True, {**dirty_log.OVERRIDES, "log.retention.check.interval.ms": _RETENTION_CHECK_MS})
    side = Side(peer.name, peer.broker)
    quiet, deleting = [], []
    try:
        log = dirty_log.DirtyLog(side, _segment_bytes(effort))
        log.fill(effort.compaction_bytes)
        os.sync()
        seconds = 2 * effort.seconds
        peer.load(*_quiet_producer(effort.warmup_seconds))
        for _ in range(effort.repetitions):
            quiet.append(_p999(peer.load(*_quiet_producer(seconds))))
            deleting.append(_p999_while_deleting(peer, side, effort, seconds))
        return quiet, deleting, _p999_while_compacting(peer, effort, seconds, log)
    finally:
        side.close()
        peer.close()


def retention(bench: LogBench) -> list[Row]:
    """Measures how deleting segments and compacting affect the producers of other logs; ours against itself at rest.
    Medians of turns. Ten bad moments in as many seconds make a p99.9, and a virtual machine has such moments of its
    own: one turn at rest is often three times another."""
    effort = bench.effort
    quiet: list[float] = []
    deleting: list[float] = []
    compacting: list[float] = []
    for _ in range(effort.repetitions):
        at_rest, beside_deletion, beside_compaction = _upkeep_round(bench)
        quiet += at_rest
        deleting += beside_deletion
        compacting.append(beside_compaction)
    turns = {"quiet": quiet, "deleting": deleting, "compacting": compacting}
    bench.raw.append({"section": "retention", "p99.9 us": turns})
    named = {f"retention deletes {effort.deleted_segments} segments": deleting, "compaction runs": compacting}
    unit, rest = "produce p99.9 us", median(quiet)
    return [Row(name, unit, median(each), rest, PRODUCE_P999_LIMIT) for name, each in named.items()]


def _compact_beside(log: dirty_log.DirtyLog) -> None:
    log.start_compaction()
    log.wait(_WAIT_SECONDS)


#: The name of what stands on the other side, and the section.
LOG_SECTIONS: Mapping[str, tuple[str, Callable[[LogBench], list[Row]]]] = {
    "recovery": ("kafka", recovery),
    "compaction": ("kafka", compaction),
    "retention": ("quiet", retention),
}
