"""A log that is worth compacting: zstd batches with values of 1 KiB, of which a fifth is the last of its key.

Built and sent here, by raw requests, so that two brokers get the same bytes. Keys are drawn at random from a fifth as
many as there are records; so what lives is spread over all batches, and most of these are kept in part.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import cramjam

from pybroker.protocol import record_batch
from tests.harness.differential.batches import compressed
from tests.harness.differential.side import LATEST, Side

TOPIC = "dirty"
PARTITIONS = 4
VALUE_BYTES = 1024
RECORDS_PER_BATCH = 64
_POOL = os.urandom(1 << 20)
_PAUSED, _RUNNING = {"min.cleanable.dirty.ratio": "1"}, {"min.cleanable.dirty.ratio": "0.01"}
# As long as by default. The benchmarks' brokers use a shorter delay for their disk's sake. Here the work of freeing
# blocks would be charged to the cleaner that finishes first.
_REPLACED_FILES_STAY = {"file.delete.delay.ms": "60000"}
#: For both brokers: the cleaner looks for work often, and no log is deleted from.
OVERRIDES = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1", "log.retention.bytes": "-1"}


def _compress(records: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(records, 1))


def _batch(keys: list[int], timestamp_ms: int, chance: random.Random) -> bytes:
    """One batch. Half of a value cannot be compressed."""
    records = []
    for key in keys:
        at = chance.randrange(len(_POOL) - VALUE_BYTES)
        half = _POOL[at : at + VALUE_BYTES // 2]
        records.append((b"key-%012d" % key, half + b"x" * len(half)))
    return compressed(record_batch.build_plain(-1, records, timestamp_ms=timestamp_ms), "zstd", _compress)


def batches(size_bytes: int) -> Iterator[bytes]:
    """Batches with so many bytes of values in all."""
    chance = random.Random(1)
    count = size_bytes // VALUE_BYTES
    key_count = max(1, count // 5 // PARTITIONS)
    timestamp_ms = int(time.time() * 1000) - 3_600_000
    for _ in range(count // RECORDS_PER_BATCH):
        yield _batch([chance.randrange(key_count) for _ in range(RECORDS_PER_BATCH)], timestamp_ms, chance)


@dataclass(frozen=True)
class Compaction:
    """The result of a pass: bytes of the segments before and after."""

    seconds: float
    cpu_seconds: float
    before_bytes: int
    after_bytes: int


class DirtyLog:
    """The topic on one broker."""

    def __init__(self, side: Side, segment_bytes: int) -> None:
        self._side = side
        self.topics = [f"{TOPIC}-{number}" for number in range(PARTITIONS)]
        config = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes), **_PAUSED, **_REPLACED_FILES_STAY}
        side.create(dict.fromkeys(self.topics, config))

    def fill(self, size_bytes: int) -> None:
        """Send everything, and close the last segments: what is active is never compacted."""
        waiting: dict[str, bytes] = {}
        for number, batch in enumerate(batches(size_bytes)):
            waiting[self.topics[number % PARTITIONS]] = batch
            if len(waiting) == PARTITIONS:
                self._send(waiting)
                waiting = {}
        self._side.configure({key: {"segment.ms": "1"} for key in self.topics})
        time.sleep(0.1)
        for _ in range(2):
            last = record_batch.build(0, -1, [record_batch.Record(b"last", b"x")], timestamp_ms=int(time.time() * 1000))
            self._send(dict.fromkeys(self.topics, last))
            time.sleep(0.1)

    def _send(self, data: dict[str, bytes]) -> None:
        refused = {topic: code for topic, (code, _) in self._side.produce(data).items() if code}
        if refused:
            raise RuntimeError(f"{self._side.name} refused {refused}")

    def start_compaction(self) -> None:
        """Let the cleaner begin."""
        self._side.configure(dict.fromkeys(self.topics, _RUNNING))

    def is_compacted(self) -> bool:
        """Whether all below the active segments is clean."""
        cleaned = self._side.cleaned_offsets()
        return all(cleaned.get(topic, 0) >= self._side.segments(topic)[-1][0] for topic in self.topics)

    def wait(self, timeout_seconds: float) -> None:
        """Until all is clean."""
        deadline = time.monotonic() + timeout_seconds
        while not self.is_compacted():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._side.name} has not compacted {self.topics} in {timeout_seconds} s")
            time.sleep(0.05)

    def size_bytes(self) -> int:
        """All segments of all partitions."""
        return sum(size for topic in self.topics for _, size in self._side.segments(topic))

    def end_offsets(self) -> list[int]:
        """The end offset of each partition."""
        return [place.offset for place in self._side.list_offsets(dict.fromkeys(self.topics, LATEST)).values()]
