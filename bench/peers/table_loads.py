"""The loads in the table of peers, and the figures of each that are shown.

A load runs on a topic of its own that is deleted afterwards, so that no peer's disk fills and each repetition starts
alike. Durability is what a topic is created with, in Kafka's own setting: it means the same to all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.peers.peer import PROBE_PRIORITY, Measurement
from pybroker.results.row import HIGHER, LOWER

TOPIC = "table"
NONE, ACKS = "none", "acks"
#: The promise of an answer to a producer, for the table.
PROMISES = {NONE: "the page cache has it (no fsync)", ACKS: "the disk has it (fsync; `flush.messages=1`)"}
DURABLE = ("--topic-config", "flush.messages=1")


@dataclass(frozen=True)
class Figure:
    """One number of a measurement: how it is called, which way it improves, and how it is printed."""

    title: str
    better: str
    value: Callable[[Measurement], float]
    digits: int


FIGURES: Mapping[str, Figure] = {
    "mb_per_s": Figure("MB/s", HIGHER, lambda one: one.mb_per_s, 0),
    "cpu_s_per_gb": Figure("CPU s/GB", LOWER, lambda one: one.cpu_s_per_gb, 2),
    "requests_per_s": Figure("requests/s", HIGHER, lambda one: one.requests_per_s, 0),
    "cpu_us_per_request": Figure("CPU us/request", LOWER, lambda one: one.cpu_us_per_request, 0),
    "p50": Figure("p50 us", LOWER, lambda one: one.latency_us("p50"), 0),
    "p99": Figure("p99 us", LOWER, lambda one: one.latency_us("p99"), 0),
}


@dataclass(frozen=True)
class TableLoad:
    """A load. `fill` bytes are produced to its topic before, for loads that read; `timed` ones end by the clock."""

    name: str
    arguments: tuple[str, ...]
    figures: Sequence[str]
    durability: str = NONE
    fill: bool = False
    timed: bool = True

    @property
    def words(self) -> tuple[str, ...]:
        """pbload's arguments."""
        return (*self.arguments, *(DURABLE if self.durability == ACKS else ()))

    @property
    def has_topic(self) -> bool:
        """Whether it leaves records behind."""
        return TOPIC in self.arguments


def _produce(connections: int, in_flight: int, batch: str, *more: str) -> tuple[str, ...]:
    counts = ("--connections", str(connections), "--in-flight", str(in_flight))
    return ("produce", "--topic", TOPIC, *counts, "--batch-bytes", batch, *more)


_BYTES, _COST, _WAIT = ("mb_per_s", "cpu_s_per_gb"), ("cpu_s_per_gb",), ("p50", "p99")
_CONTROL = ("requests_per_s", "cpu_us_per_request")
_PACED = ("--rate", "400", *PROBE_PRIORITY)


def loads(topic_count: int, member_count: int) -> tuple[TableLoad, ...]:
    """All of them, in the order of the table."""
    commit = ("offset-commit", "--topic", "commit", "--partitions", "10", "--connections", "8")
    metadata = ("metadata", "--topic", "meta", "--topics", str(topic_count), "--connections", "4")
    return (
        TableLoad("produce 256 KiB batches, 1 x 5", _produce(1, 5, "256k"), _BYTES),
        TableLoad("produce 16 KiB batches, 4 x 5", _produce(4, 5, "16k"), _BYTES),
        TableLoad("produce 1 KiB, 16 x 1, 4 partitions", _produce(16, 1, "1k", "--partitions", "4"), _COST),
        TableLoad("produce 64 KiB lz4 batches, 1 x 5", _produce(1, 5, "64k", "--codec", "lz4"), _COST),
        TableLoad("produce 64 KiB zstd batches, 1 x 5", _produce(1, 5, "64k", "--codec", "zstd"), _COST),
        TableLoad("produce 1 KiB, one in flight", _produce(1, 1, "1k"), _WAIT),
        TableLoad("produce 16 KiB at 400/s, 4 x 1", _produce(4, 1, "16k", *_PACED), _WAIT),
        TableLoad("produce 256 KiB batches, 1 x 5", _produce(1, 5, "256k"), _BYTES, ACKS),
        TableLoad("produce 16 KiB batches, 4 x 5", _produce(4, 5, "16k"), _BYTES, ACKS),
        TableLoad("produce 4 KiB, one in flight", _produce(1, 1, "4k"), _WAIT, ACKS),
        TableLoad(
            "fetch 1 MiB, 4 x 1, in memory",
            ("fetch", "--topic", TOPIC, "--connections", "4", "--max-bytes", "1m"),
            _BYTES,
            fill=True,
        ),
        TableLoad("OffsetCommit of 10 partitions", commit, _CONTROL),
        TableLoad("Heartbeat", ("heartbeat", "--connections", "16", "--groups", "4"), _CONTROL),
        TableLoad(f"Metadata of {topic_count:,} topics", metadata, _CONTROL),
        TableLoad(
            f"{member_count:,} members join", ("join", "--connections", str(member_count)), _CONTROL, timed=False
        ),
    )
