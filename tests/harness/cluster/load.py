"""`Load`: idempotent producers and members of a consumer group at work on a cluster, all written into a `History`.

A thread for each producer and member, with clients of librdkafka. Errors that pass are the clients' to deal with; the
history gets those that do not. `read_everything` reads the logs at the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.harness.cluster.history import CommitEvent, History, Place, Seen, decode_value, encode_value

GROUP = "load"
_FILLER = bytes(range(256)) * 2
_DRAIN_SECONDS = 120.0
_HIGH_WATERMARK_SECONDS = 15.0
_COMMIT_SECONDS = 0.5
_LOST_SECONDS = 15.0
_READ_SECONDS = 30.0
_CLOSE_SECONDS = 120.0
_RECORDS_IN_A_ROW = 10
_QUEUE_COUNT = 1000
_PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 2,
    "message.timeout.ms": 120_000,
    "queue.buffering.max.messages": _QUEUE_COUNT,
}
#: Brokers that end and come back are found again soon, and one that is silent is not waited for.
CLIENT = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 5000,
    "socket.connection.setup.timeout.ms": 3000,
    "socket.timeout.ms": 10_000,
    "log_level": 2,
}
_CONSUMER = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "session.timeout.ms": 10_000,
    "fetch.wait.max.ms": 50,
    "check.crcs": True,
}


class Load:
    """Start once the partitions exist; stop to have everything answered."""

    def __init__(
        self,
        bootstrap: str,
        places: Sequence[Place],
        history: History,
        *,
        producers: int = 2,
        members: int = 2,
        records_per_second: int = 200,
        producer_settings: Mapping[str, Any] | None = None,
        first_producer: int = 0,
    ) -> None:
        """`records_per_second` is each producer's. Producers are numbered from `first_producer`: loads that share a
        history need numbers of their own."""
        self.history = history
        self._bootstrap = bootstrap
        self._places = list(places)
        self._rate = records_per_second
        self._producer_settings = dict(producer_settings or {})
        self._producing = threading.Event()
        self._consuming = threading.Event()
        self._producers = [
            self._thread(self._produce, number) for number in range(first_producer, first_producer + producers)
        ]
        self._commits = [_Commits(history) for _ in range(members)]
        self._members = [self._thread(self._consume, number) for number in range(members)]

    def start(self) -> None:
        """Begin."""
        self._producing.set()
        self._consuming.set()
        for thread in self._producers + self._members:
            thread.start()

    def stop(self) -> None:
        """Send no more, wait for the answers and for the group to have read all, then end its members, who commit where
        they are."""
        self._producing.clear()
        for thread in self._producers:
            thread.join()
        self._wait_for_members()
        self._consuming.clear()
        for thread in self._members:
            thread.join(_CLOSE_SECONDS)
        for thread, commits in zip(self._members, self._commits, strict=True):
            if not thread.is_alive():
                continue
            if commits.unanswered_count > 0:
                self.history.add_stuck_member()
            else:
                self.history.add_client_error(f"{thread.name} does not end")

    def _wait_for_members(self) -> None:
        """What they have not read after that time, the checker finds."""
        deadline = time.monotonic() + _READ_SECONDS
        while self._members and time.monotonic() < deadline:
            read = self.history.group_read_by_place()
            if all(read.get(place, 0) >= count for place, count in self.history.acknowledged_by_place().items()):
                return
            time.sleep(0.05)

    def wait_for_progress(self, timeout_seconds: float = 120.0, count: int = 20) -> None:
        """Return when so many more records of each partition are acknowledged, and read by the group if it has members.
        AssertionError when it takes longer."""
        counters = [self.history.acknowledged_by_place] + ([self.history.group_read_by_place] if self._members else [])
        before = [counter() for counter in counters]
        deadline = time.monotonic() + timeout_seconds
        while behind := [
            (place, counter.__name__)
            for counter, then in zip(counters, before, strict=True)
            for now in [counter()]
            for place in self._places
            if now.get(place, 0) < then.get(place, 0) + count
        ]:
            assert not self.history.client_errors, self.history.client_errors[:5]
            assert time.monotonic() < deadline, f"no progress in {timeout_seconds:g} s: {behind}"
            time.sleep(0.02)

    def _thread(self, work: Callable[[int], None], number: int) -> threading.Thread:
        def run() -> None:
            try:
                work(number)
            except Exception as error:  # noqa: BLE001 (whatever ends a client is told by the checker)
                self.history.add_client_error(f"{work.__name__.strip('_')} {number}: {error!r}")

        return threading.Thread(target=run, name=f"{work.__name__.strip('_')} {number}", daemon=True)

    # --- producers --------------------------------------------------------------------------------------------------

    def _produce(self, number: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                **_PRODUCER,
                **CLIENT,
                **self._producer_settings,
                "error_cb": self._on_error,
            }
        )
        count = 0
        started = time.monotonic()
        while self._producing.is_set():
            place = self._places[(count // _RECORDS_IN_A_ROW + number) % len(self._places)]
            if len(producer) >= _QUEUE_COUNT - 1:
                producer.poll(0.01)
                continue
            record = self.history.add_sent((number, place))
            value = encode_value(number, record, _FILLER[: record % len(_FILLER)])
            producer.produce(place[0], value, partition=place[1], on_delivery=self._on_delivery)
            count += 1
            producer.poll(0)
            # What could not be sent during a fault is not made up for afterwards.
            ahead = started + count / self._rate - time.monotonic()
            if ahead > 0:
                producer.poll(ahead)
            elif ahead < -0.1:
                started -= ahead
        left = producer.flush(_DRAIN_SECONDS)
        if left:
            self.history.add_client_error(f"producer {number}: {left} records were never answered")

    def _on_delivery(self, error: Any, message: Message) -> None:
        identity = decode_value(message.value())
        assert identity is not None
        producer, number = identity
        sender = (producer, (str(message.topic()), int(message.partition() or 0)))
        if error is None:
            offset = message.offset()
            # librdkafka has no offset for a batch that it knows of only by the answer to a later one.
            self.history.add_acknowledged(sender, number, offset if offset is not None and offset >= 0 else None)
        else:
            self.history.add_unknown(sender, number, str(error))

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.history.add_client_error(f"fatal: {error}")

    # --- members of the group ---------------------------------------------------------------------------------------

    def _consume(self, member: int) -> None:
        commits = self._commits[member]
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                **_CONSUMER,
                **CLIENT,
                "error_cb": self._on_error,
                "on_commit": commits.ended,
            }
        )
        positions: dict[Place, int] = {}

        def on_assign(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            positions.clear()
            self._fetch_committed(consumer, partitions)

        def on_revoke(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            commits.begin(consumer, positions)

        consumer.subscribe(sorted({topic for topic, _ in self._places}), on_assign=on_assign, on_revoke=on_revoke)
        committed = time.monotonic()
        try:
            while self._consuming.is_set():
                for message in consumer.consume(100, timeout=0.1):
                    self._take(member, message, positions)
                if time.monotonic() - committed > _COMMIT_SECONDS:
                    commits.begin(consumer, positions)
                    committed = time.monotonic()
        finally:
            consumer.close()

    def _take(self, member: int, message: Message, positions: dict[Place, int]) -> None:
        if message.error() is not None:
            return  # what does not pass by itself comes to `_on_error`
        place, seen = _seen(message)
        self.history.add_group_read(GROUP, member, place, seen)
        positions[place] = seen.offset + 1

    def _fetch_committed(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """What the group has committed, as whoever takes a partition over is told."""
        began = time.monotonic()
        try:
            found = consumer.committed(partitions, timeout=10)
        except KafkaException:
            return  # the coordinator is away; librdkafka asks again by itself
        ended = time.monotonic()
        for each in found:
            if each.error is None:
                offset = each.offset if each.offset >= 0 else -1
                self.history.add_commit(CommitEvent(GROUP, (each.topic, each.partition), offset, False, began, ended))


class _Commits:
    """What a member commits: one commit at a time, so that none that is sent again comes behind a later one.

    It does not wait for the answers: librdkafka may lose a commit that is under way while its connections are cut, and
    whoever waits for that one waits for ever; the end of the member, too. What a broker does not answer is another
    thing: its time runs out, and that is told.
    """

    def __init__(self, history: History) -> None:
        self.unanswered_count = 0
        self._history = history
        self._offsets: dict[Place, int] = {}
        self._began = 0.0

    def begin(self, consumer: Consumer, positions: dict[Place, int]) -> None:
        """Commit these, and forget them; not while another commit is under way."""
        now = time.monotonic()
        if not positions or (self._offsets and now < self._began + _LOST_SECONDS):
            return
        self._offsets, self._began = dict(positions), now
        positions.clear()
        consumer.commit(
            offsets=[TopicPartition(*place, offset) for place, offset in self._offsets.items()], asynchronous=True
        )
        self.unanswered_count += 1

    def ended(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """One was answered: refused, because the group has moved on, or unknown, nothing is promised."""
        ended = time.monotonic()
        self.unanswered_count -= 1
        if {(each.topic, each.partition): each.offset for each in partitions} != self._offsets:
            return  # it was taken for lost
        self._offsets = {}
        if error is not None:
            return
        for each in partitions:
            if each.error is None:
                place = (each.topic, each.partition)
                self._history.add_commit(CommitEvent(GROUP, place, each.offset, True, self._began, ended))


def _seen(message: Message) -> tuple[Place, Seen]:
    place = (str(message.topic()), int(message.partition() or 0))
    return place, Seen(int(message.offset() or 0), decode_value(message.value()))


def read_everything(
    bootstrap: str, places: Sequence[Place], history: History, settings: Mapping[str, Any] | None = None
) -> None:
    """Read these logs from their beginnings to their ends into `history.final_reads`.

    A high watermark may rise for a while after a leader has changed, so a log that ends before what was acknowledged
    gets some more time. AssertionError when all takes more than two minutes.
    """
    wanted = {place: history.acknowledged_end(place) for place in places}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "final-read",
            **_CONSUMER,
            **CLIENT,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **(settings or {}),
        }
    )
    reads: dict[Place, list[Seen]] = {place: [] for place in places}
    ended_at: dict[Place, int] = {}
    changed = started = time.monotonic()
    try:
        begin = [consumer.get_watermark_offsets(TopicPartition(*place), timeout=60)[0] for place in places]
        consumer.assign([TopicPartition(*place, first) for place, first in zip(places, begin, strict=True)])
        while any(ended_at.get(place, -1) < wanted[place] for place in places):
            now = time.monotonic()
            assert now - started < _DRAIN_SECONDS, f"{sorted(set(places) - set(ended_at))} were not read to the end"
            if len(ended_at) == len(places) and now - changed > _HIGH_WATERMARK_SECONDS:
                break  # the checker says what is lost
            for message in consumer.consume(1000, timeout=0.5):
                changed = time.monotonic()
                error = message.error()
                if error is None:
                    place, seen = _seen(message)
                    reads[place].append(seen)
                elif error.name() == "_PARTITION_EOF":
                    ended_at[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0)
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    history.final_reads.update(reads)
