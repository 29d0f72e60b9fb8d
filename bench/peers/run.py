"""Parts that every section of the comparison shares: the peers, how long to measure, and alternating repetitions."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.machine import BareServer
from bench.peers.peer import Measurement, Peer


@dataclass(frozen=True)
class Effort:
    """How much a run measures."""

    repetitions: int
    seconds: float
    warmup_seconds: float
    fill: str
    fetch_fill: str
    topic_count: int
    member_count: int
    rdkafka_seconds: float
    recovery_partitions: int
    recovery_bytes: int  # of each partition, all in its active segment
    compaction_bytes: int
    deleted_segments: int
    history_bytes: int


GIB = 1 << 30
_TIDYING_BYTES = 16 << 20
_TIDYING_LOOK_SECONDS, _TIDYING_SECONDS = 5, 300
FULL = Effort(3, 5, 2, "4g", "512m", 1000, 1000, 20, 20, GIB // 2, 5 * GIB, 100, 3 * GIB // 2)
# Every code path once, for its errors: the figures mean nothing.
QUICK = Effort(1, 0.5, 0.2, "64m", "32m", 50, 50, 2, 4, 8 << 20, 32 << 20, 10, 64 << 20)


@dataclass
class Run:
    """The peers of one comparison, in the order they take turns, and all they measured."""

    peers: Sequence[Peer]
    effort: Effort
    raw: list[dict[str, Any]] = field(default_factory=list)

    def note(self, peer: Peer | BareServer, shape: str, measurement: Measurement, **more: str) -> Measurement:
        """Keep a measurement for the saved report, and what else there is to say of it."""
        row = {"peer": peer.name, "shape": shape, "cpu_s": measurement.cpu_seconds, "load": measurement.load}
        self.raw.append({**row, **more})
        return measurement

    def fill(self) -> None:
        """Produce until each memory cgroup is full, so that all measure in steady state."""
        for peer in self.peers:
            peer.load(
                "produce", "--topic", "fill", "--batch-bytes", "256k", "--in-flight", "5", "--bytes", self.effort.fill
            )
        os.sync()

    def settle(self, data: Path) -> None:
        """Wait until nobody deletes any more what earlier loads have left: a steady state is that of one's own load."""
        deadline = time.monotonic() + _TIDYING_SECONDS
        before, used = None, shutil.disk_usage(data).used
        while before is None or before - used >= _TIDYING_BYTES:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the brokers still delete after {_TIDYING_SECONDS} s; {used} bytes are left")
            time.sleep(_TIDYING_LOOK_SECONDS)
            before, used = used, shutil.disk_usage(data).used

    @contextmanager
    def alone(self, peer: Peer | BareServer | None) -> Iterator[None]:
        """The other brokers stand still: even with nothing to do they take their turns on a CPU, and on two busy ones
        each is a delay. None: all of them do."""
        with ExitStack() as stack:
            for other in self.peers:
                if other is not peer:
                    stack.enter_context(other.frozen())
            yield

    def alternate(self, shape: str, measure: Callable[[Peer], Measurement]) -> dict[str, list[Measurement]]:
        """Measure every peer in turn, alone, `repetitions` times; dirty pages of one are never the next one's bill."""
        results: dict[str, list[Measurement]] = {peer.name: [] for peer in self.peers}
        for _ in range(self.effort.repetitions):
            for peer in self.peers:
                with self.alone(peer):
                    results[peer.name].append(self.note(peer, shape, measure(peer)))
                os.sync()
        return results


def median(measurements: Sequence[Measurement], figure: Callable[[Measurement], float]) -> float:
    """The median of one figure over repetitions."""
    return statistics.median(figure(measurement) for measurement in measurements)
