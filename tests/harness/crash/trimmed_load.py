"""`TrimmedLoad`: a producer to logs that are compacted and deleted from all the time, and what must be left of them.

Each record has a number in a header, which grows from record to record. Of a compacted partition there must be, for
each key, the last value that was promised or a later one; a key may be gone only after a tombstone. Of a partition with
retention, everything above its log start offset, in order. What "promised" is, a kill and a power cut see differently:
the caller says it by an offset per partition.

One thread produces; `TrimmedCheck` reads on the caller's. Can fail: AssertionError with what is there instead.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.crash.client_settings import PRODUCING
from tests.harness.differential.batches import SeenRecord, seen_records
from tests.harness.differential.side import EARLIEST

COMPACTED, TRIMMED = "compacted", "trimmed"
TOPICS: Mapping[str, Mapping[str, str]] = {
    COMPACTED: {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "500",
        "index.interval.bytes": "512",
    },
    TRIMMED: {"segment.ms": "150", "retention.bytes": "30000", "index.interval.bytes": "512"},
}
PARTITIONS = 2
#: Server properties that make all of it happen often.
OVERRIDES = {
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
}
_HEADER = "number"
_RETRIED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NUMBER = struct.Struct(">Q")
_KEY_COUNT = 40
_FILLER = os.urandom(2000)
Place = tuple[str, int]
PLACES: tuple[Place, ...] = tuple((topic, index) for topic in TOPICS for index in range(PARTITIONS))


@dataclass
class TrimmedLedger:
    """Per partition: what was sent, number to (key, whether it is a tombstone), and number to offset of what was
    acknowledged."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: dict[Place, dict[int, tuple[bytes, bool]]] = field(default_factory=lambda: {place: {} for place in PLACES})
    acknowledged: dict[Place, dict[int, int]] = field(default_factory=lambda: {place: {} for place in PLACES})
    failures: list[str] = field(default_factory=list)
    next_number: int = 0

    def ends(self) -> dict[Place, int]:
        """The offset after the last acknowledged record of each partition, now: what a kill must leave."""
        with self.lock:
            return {place: max(offsets.values(), default=-1) + 1 for place, offsets in self.acknowledged.items()}

    def total(self) -> int:
        """All acknowledged records that are not forgotten."""
        with self.lock:
            return sum(map(len, self.acknowledged.values()))

    def forget_from(self, ends: Mapping[Place, int]) -> None:
        """What lay at or above these offsets is lost, and was allowed to be: other records get its offsets."""
        with self.lock:
            for place, end in ends.items():
                kept = {number: offset for number, offset in self.acknowledged[place].items() if offset < end}
                self.acknowledged[place] = kept


class TrimmedLoad:
    """One idempotent producer. Start once the topics exist; stop to drain, or abandon."""

    def __init__(self, bootstrap: str, ledger: TrimmedLedger, seed: int, records_per_second: int = 1000) -> None:
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._random = random.Random(seed)
        self._rate = records_per_second
        self._stopping = threading.Event()
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="trimmed load")

    def start(self) -> None:
        """Begin to produce."""
        self._thread.start()

    def stop(self) -> None:
        """No more records; return when all that were sent are answered."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def abandon(self) -> None:
        """Stop, and forget what was not answered."""
        self._abandoned = True
        self.stop()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "compression.type": self._random.choice(("none", "lz4", "zstd")),
                **PRODUCING,
            }
        )
        started = time.monotonic()
        count = 0
        while not self._stopping.is_set() and not self._ledger.failures:
            self._produce(producer)
            count += 1
            ahead = started + count / self._rate - time.monotonic()
            producer.poll(max(0.0, ahead))
            if ahead < -0.1:
                started -= ahead
        if self._abandoned:
            producer.purge()
        if producer.flush(60):
            self._ledger.failures.append("trimmed load: records were never answered")

    def _produce(self, producer: Producer) -> None:
        chance = self._random
        place = chance.choice(PLACES)
        key = b"key-%d" % chance.randrange(_KEY_COUNT)
        is_tombstone = place[0] == COMPACTED and chance.random() < 0.1
        number = self._ledger.next_number
        value = None if is_tombstone else _FILLER[: number * 37 % 2000]

        def delivered(error: Any, message: Any) -> None:
            with self._ledger.lock:
                if error is None:
                    # None: see `record_load.Ledger`. Then nothing is known to be compared.
                    if message.offset() is not None:
                        self._ledger.acknowledged[place][number] = message.offset()
                elif not self._abandoned:
                    self._ledger.failures.append(f"{place} record {number}: {error}")

        with self._ledger.lock:
            self._ledger.next_number += 1
            self._ledger.sent[place][number] = (key, is_tombstone)
        headers: list[tuple[str, str | bytes | None]] = [(_HEADER, _NUMBER.pack(number))]
        try:
            producer.produce(place[0], value, key, place[1], on_delivery=delivered, headers=headers)
        except BufferError:
            # Not sent: nobody expects it.
            producer.poll(0.01)


@dataclass(frozen=True)
class _Found:
    """A record that was read."""

    offset: int
    number: int
    key: bytes
    is_tombstone: bool


class TrimmedCheck:
    """Reads all partitions and holds them against a ledger."""

    def __init__(self, bootstrap: str, ledger: TrimmedLedger) -> None:
        self._bootstrap = bootstrap
        self._ledger = ledger
        self.end_offsets: dict[Place, int] = {}
        self.deleted_count = 0
        self.compacted_count = 0

    def run(self, promised: Mapping[Place, int], *, is_quiet: bool = False) -> int:
        """Everything below the promised offset of a partition must be there, but what may have been trimmed; when it is
        quiet, with nobody producing, everything below its end: whatever was lost, no hole is left. Gives the number of
        records read. `deleted_count`, `compacted_count`: what was not there any more, rightly."""
        assert not self._ledger.failures, self._ledger.failures[:5]
        self.deleted_count = self.compacted_count = 0
        count = 0
        for place in PLACES:
            start, end, found = self._read(place)
            self.end_offsets[place] = end
            assert end >= promised[place], f"{place} ends at {end}; {promised[place]} was promised"
            self._check_numbers(place, found)
            if place[0] == COMPACTED:
                assert start == 0, f"{place} starts at {start}: compaction moves no log start offset"
                self._check_latest(place, found, end if is_quiet else promised[place])
                self.compacted_count += end - len(found)
            else:
                assert [each.offset for each in found] == list(range(start, end)), f"{place}: not all of {start}-{end}"
                self.deleted_count += start
            count += len(found)
        return count

    def _check_numbers(self, place: Place, found: list[_Found]) -> None:
        """Each record is what was sent, lies where it was acknowledged, and none is doubled."""
        with self._ledger.lock:
            sent = self._ledger.sent[place]
            acknowledged = self._ledger.acknowledged[place]
            last = -1
            for each in found:
                assert each.number > last, f"{place} offset {each.offset}: record {each.number} after {last}"
                last = each.number
                assert sent[each.number] == (each.key, each.is_tombstone), f"{place}: {each}, sent {sent[each.number]}"
                told = acknowledged.get(each.number, each.offset)
                assert told == each.offset, f"{place}: {each} was acknowledged at {told}"

    def _check_latest(self, place: Place, found: list[_Found], promised: int) -> None:
        latest = {each.key: each for each in found}
        with self._ledger.lock:
            sent = self._ledger.sent[place]
            wanted: dict[bytes, int] = {}
            for number, offset in self._ledger.acknowledged[place].items():
                if offset < promised:
                    key = sent[number][0]
                    wanted[key] = max(number, wanted.get(key, -1))
            tombstones: dict[bytes, int] = {}
            for number, (key, is_tombstone) in sent.items():
                if is_tombstone:
                    tombstones[key] = max(number, tombstones.get(key, -1))
        for key, number in wanted.items():
            there = latest.get(key)
            if there is None:
                assert tombstones.get(key, -1) >= number, f"{place}: {key!r} is gone; record {number} was promised"
            else:
                assert there.number >= number, f"{place}: {key!r} went back to {there}; record {number} was promised"

    def _read(self, place: Place) -> tuple[int, int, list[_Found]]:
        """(log start offset, end, records). The last records may be compacted away: then the last answer is empty."""
        with ProtocolClient(int(self._bootstrap.rpartition(":")[2])) as client:
            deadline = time.monotonic() + 60
            row = client.fetch(place[0], 0, partition=place[1])
            while row.error_code in _RETRIED:
                assert time.monotonic() < deadline, f"{place}: no leader"
                time.sleep(0.02)
                row = client.fetch(place[0], 0, partition=place[1])
            start = offset = self._start(client, place)
            end = -1
            found: list[_Found] = []
            while end < 0 or offset < end:
                row = client.fetch(place[0], offset, partition=place[1])
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    # Retention has gone on meanwhile.
                    start = offset = self._start(client, place)
                    found = []
                    continue
                assert row.error_code == 0, f"{place} at {offset}: error {row.error_code}"
                end = row.high_watermark if end < 0 else end
                records, next_offset = seen_records(row.records or b"", offset)
                if next_offset == offset:
                    break
                found += map(_found, records)
                offset = next_offset
            return start, end, [each for each in found if each.offset < end]

    def _start(self, client: ProtocolClient, place: Place) -> int:
        wanted = m.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=place[1], current_leader_epoch=-1, timestamp=EARLIEST
        )
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=place[0], partitions=[wanted])
        answer = client.call(m.ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
        return int(answer.topics[0].partitions[0].offset)


def _found(record: SeenRecord) -> _Found:
    header = dict(record.headers)[_HEADER]
    assert header is not None and record.key is not None
    (number,) = _NUMBER.unpack(header)
    value = record.value
    assert value is None or value == _FILLER[: number * 37 % 2000], f"offset {record.offset}: other bytes than sent"
    return _Found(record.offset, number, record.key, value is None)
