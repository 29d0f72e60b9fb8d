"""`RecordLoad`: idempotent producers that go on over crashes of the broker, and a ledger of what was acknowledged.

Every producer numbers its records per partition. So in a correct log each partition shows, for each producer, the
numbers 0, 1, 2, ... in order, at least up to the last acknowledged one, each at the offset that was acknowledged.

One thread per producer; `RecordCheck` reads on the caller's. The ledger is under one lock. Can fail: AssertionError
with what a partition shows instead.
"""

from __future__ import annotations

import copy
import os
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.harness.crash.client_settings import PRODUCING, RECONNECTING

_NUMBER = struct.Struct(">IQ")
_FILLER = os.urandom(4096)
_CODECS = ("none", "lz4", "zstd", "gzip")
SILENCE_SECONDS = 120
Place = tuple[str, int]


@dataclass
class Ledger:
    """What was acknowledged: (producer, topic, partition) to the offset of each numbered record; and failures.

    None is an offset nobody was told: when a batch has had no answer, and one sent after it is known to be in the log,
    librdkafka takes both for acknowledged.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    acknowledged: dict[tuple[int, str, int], list[int | None]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def counts(self) -> dict[tuple[int, str, int], int]:
        """How many records of each producer are acknowledged in each partition, now."""
        with self.lock:
            return {key: len(offsets) for key, offsets in self.acknowledged.items()}

    def total(self) -> int:
        """All acknowledged records."""
        return sum(self.counts().values())


class RecordLoad:
    """Producers at a bounded rate over all `places`. Start once the topics exist; stop to drain."""

    def __init__(
        self,
        bootstrap: str,
        places: Sequence[Place],
        producer_count: int = 3,
        records_per_second: int = 1500,
        settings: Mapping[str, Any] | None = None,
        ledger: Ledger | None = None,
        first_number: int = 0,
    ) -> None:
        """`settings` go to every producer. A `ledger` may serve several loads if their producers' numbers, which begin
        with `first_number`, differ."""
        self.ledger = ledger if ledger is not None else Ledger()
        self._abandoned = False
        self._bootstrap = bootstrap
        self._places = list(places)
        self._rate = records_per_second
        self._settings = dict(settings or {})
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"producer {number}")
            for number in range(first_number, first_number + producer_count)
        ]

    def start(self) -> None:
        """Begin to produce."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No more records; return when all that were sent are answered."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def abandon(self) -> None:
        """Stop, and forget what was not answered."""
        self._abandoned = True
        self.stop()

    def wait_for_progress(self, timeout_seconds: float, count: int = 50) -> None:
        """Return when `count` more records are acknowledged. AssertionError when that takes too long."""
        wanted = self.ledger.total() + count
        deadline = time.monotonic() + timeout_seconds
        while self.ledger.total() < wanted:
            assert not self.ledger.failures, self.ledger.failures[:5]
            assert time.monotonic() < deadline, f"no {count} records were acknowledged in {timeout_seconds} s"
            time.sleep(0.005)

    def _delivered(self, error: Any, message: Any) -> None:
        number, sequence = _NUMBER.unpack_from(message.value())
        key = (number, message.topic(), message.partition())
        with self.ledger.lock:
            if error is not None and self._abandoned:
                return
            if error is not None:
                self.ledger.failures.append(f"producer {key} record {sequence}: {error}")
                return
            offsets = self.ledger.acknowledged.setdefault(key, [])
            if sequence != len(offsets):
                self.ledger.failures.append(f"producer {key}: acknowledged {sequence} after {len(offsets) - 1}")
            offsets.append(message.offset())

    def _producer(self, number: int) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "compression.type": _CODECS[number % len(_CODECS)],
                "queue.buffering.max.messages": 2000,
                **PRODUCING,
                "error_cb": self._on_error,
                **self._settings,
            }
        )

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.ledger.failures.append(f"fatal: {error}")

    def _run(self, number: int) -> None:
        try:
            self._produce(self._producer(number), number)
        except Exception as error:  # noqa: BLE001 (handed to the test's thread, which fails with it)
            self.ledger.failures.append(f"producer {number}: {error!r}")

    def _produce(self, producer: Producer, number: int) -> None:
        next_sequence = dict.fromkeys(self._places, 0)
        count = 0
        started = time.monotonic()
        while not self._stopping.is_set() and not self.ledger.failures:
            # Some tens in a row to one partition, so that batches hold several records.
            place = self._places[(count // 20 + number) % len(self._places)]
            sequence = next_sequence[place]
            value = _NUMBER.pack(number, sequence) + _FILLER[: (sequence * 37 + number) % 900]
            try:
                producer.produce(place[0], value, partition=place[1], on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.01)
                continue
            next_sequence[place] += 1
            count += 1
            producer.poll(0)
            # What could not be sent during a crash is not made up for afterwards.
            ahead = started + count / self._rate - time.monotonic()
            if ahead > 0:
                producer.poll(ahead)
            elif ahead < -0.1:
                started -= ahead
        left = self._finish(producer)
        if left:
            self.ledger.failures.append(f"producer {number}: {left} records were never answered")

    def _finish(self, producer: Producer) -> int:
        """Wait for the answers; how many have not come in a minute. What is abandoned is purged again and again: one
        purge misses what the library has just taken back from a lost connection, to send it once more."""
        left = 0
        for _ in range(60):
            if self._abandoned:
                producer.purge()
            left = producer.flush(1)
            if left == 0:
                break
        return left


@dataclass
class _Position:
    """How far a partition has been read, and which number each producer's next record must have."""

    next_offset: int = 0
    expected: dict[int, int] = field(default_factory=dict)


class RecordCheck:
    """Reads the partitions and holds them against a ledger, again and again."""

    def __init__(self, bootstrap: str, places: Sequence[Place], ledger: Ledger) -> None:
        self._bootstrap = bootstrap
        self._places = list(places)
        self._ledger = ledger
        self._positions = {place: _Position() for place in self._places}
        self._before = copy.deepcopy(self._positions)

    def run(self, promised: Mapping[tuple[int, str, int], int] | None = None, *, whole: bool = False) -> int:
        """Check every record up to the high watermark; the number read.

        `promised` is `Ledger.counts` as of before the crash: so many records must be there. Without `whole`, reading
        begins where the check before the last one ended, so that each part of the log is seen after two crashes.
        """
        begin = {place: _Position() for place in self._places} if whole else self._before
        self._before = self._positions
        self._positions = copy.deepcopy(begin)
        count = self._read()
        for (producer, topic, partition), wanted in (promised or {}).items():
            found = self._positions[topic, partition].expected.get(producer, 0)
            assert found >= wanted, (
                f"{topic}-{partition}: acknowledged records {found} to {wanted - 1} of producer {producer} are lost; "
                f"the log ends at {self._positions[topic, partition].next_offset}"
            )
        return count

    def end_offset(self, place: Place) -> int:
        """Where the last run found the partition's end."""
        return self._positions[place].next_offset

    def _read(self) -> int:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "check",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 10,
                **RECONNECTING,
            }
        )
        try:
            ends = {
                place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=60)[1] for place in self._places
            }
            for place, position in self._positions.items():
                assert ends[place] >= position.next_offset, (
                    f"{place}: ends at {ends[place]}, and {position.next_offset} records had been read"
                )
            consumer.assign([TopicPartition(*place, p.next_offset) for place, p in self._positions.items()])
            return self._read_to(consumer, ends)
        finally:
            consumer.close()

    def _read_to(self, consumer: Consumer, ends: Mapping[Place, int]) -> int:
        """Each partition to its end of before, and no further: those that others still write to have no other end."""
        count = 0
        left = {place for place in self._places if self._positions[place].next_offset < ends[place]}
        heard = time.monotonic()
        while left:
            messages = consumer.consume(2000, timeout=0.5)
            now = time.monotonic()
            heard = now if messages else heard
            assert now < heard + SILENCE_SECONDS, f"nothing came, and not read to {ends}: {self._positions}"
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                self._take(message)
                count += 1
            read = {place for place in left if self._positions[place].next_offset >= ends[place]}
            if read:
                consumer.pause([TopicPartition(*place) for place in read])
                left -= read
        return count

    def _take(self, message: Any) -> None:
        place = (message.topic(), message.partition())
        position = self._positions[place]
        offset = message.offset()
        assert offset == position.next_offset, f"{place}: offset {offset} follows {position.next_offset - 1}"
        producer, sequence = _NUMBER.unpack_from(message.value())
        expected = position.expected.get(producer, 0)
        assert sequence == expected, (
            f"{place} offset {offset}: record {sequence} of producer {producer}, expected {expected}"
            f" ({'doubled or out of order' if sequence < expected else 'one is missing'})"
        )
        filler = message.value()[_NUMBER.size :]
        assert filler == _FILLER[: (sequence * 37 + producer) % 900], f"{place} offset {offset}: other bytes than sent"
        with self._ledger.lock:
            offsets = self._ledger.acknowledged.get((producer, *place), [])
            told = offsets[sequence] if sequence < len(offsets) else offset
            if told is None:
                offsets[sequence] = told = offset  # from now on it has to stay there
        assert told == offset, f"{place}: record {sequence} of {producer} lies at {offset}, acknowledged at {told}"
        position.expected[producer] = sequence + 1
        position.next_offset = offset + 1
