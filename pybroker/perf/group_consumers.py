"""Members of one consumer group, librdkafka in processes of their own, that print what pbload would print.

Run as `python -m pybroker.perf.group_consumers`. The clock starts when all members have joined and hold every partition
between them; nothing is fetched before. A request is a poll that gave records, its latency how long that poll took.
SIGINT, SIGTERM, and the end of the process that started it, end the run early. Members end with this process, however
that ends. With --delete-group the group is deleted afterwards. Status 1 when a client reported an error. Needs
confluent-kafka.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pybroker.perf import lifetime
from pybroker.perf.histogram import Histogram

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

_JOIN_SECONDS = 60.0
_END_SECONDS = 30.0
_DELETE_SECONDS = 10.0
_POLL_RECORDS = 500
_POLL_SECONDS = 0.1
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


@dataclass
class Tally:
    """The counts of one member, or of all of them, in one interval."""

    polls: int = 0
    records: int = 0
    payload_bytes: int = 0
    sum_ns: int = 0
    max_ns: int = 0
    last_s: float = 0.0  # when the last records came, by the monotonic clock
    histogram: Histogram = field(default_factory=Histogram)

    def note(self, taken_ns: int, records: int, payload_bytes: int, now_s: float) -> None:
        """One poll that gave records."""
        self.polls += 1
        self.records += records
        self.payload_bytes += payload_bytes
        self.sum_ns += taken_ns
        self.max_ns = max(self.max_ns, taken_ns)
        self.last_s = now_s
        self.histogram.record(taken_ns)

    def add(self, other: Tally) -> None:
        """Another member's, or another interval's."""
        self.polls += other.polls
        self.records += other.records
        self.payload_bytes += other.payload_bytes
        self.sum_ns += other.sum_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        self.last_s = max(self.last_s, other.last_s)
        self.histogram.counts.update(other.histogram.counts)

    def as_json(self) -> dict[str, Any]:
        """The members that an interval and a result share."""
        quantiles = zip(_QUANTILES, self.histogram.quantiles_us(list(_QUANTILES.values())), strict=True)
        longest_us = self.max_ns / 1000
        latency = {"mean": self.sum_ns / self.polls / 1000 if self.polls else 0.0}
        latency |= {name: min(value, longest_us) if self.polls else 0.0 for name, value in quantiles}
        return {
            "requests": self.polls,
            "records": self.records,
            "payload_bytes": self.payload_bytes,
            "latency_us": {**latency, "max": longest_us},
            "histogram": self.histogram.pairs(),
        }


@dataclass(frozen=True)
class Member:
    """The arguments of a member's process. It reports ("assigned", member, count), ("tally", interval, Tally), ("end",
    …)."""

    number: int
    parent_pid: int
    bootstrap: str
    group: str
    topic: str
    interval_seconds: float
    reports: Queue[Any]
    start: Event
    stop: Event


def _consume(member: Member) -> None:
    """A member's process."""
    from confluent_kafka import Consumer, TopicPartition

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    lifetime.end_with(member.parent_pid)

    held: list[TopicPartition] = []

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        held[:] = partitions
        # A paused consumer takes half a second to go on; one without partitions goes on at once.
        consumer.assign(partitions if member.start.is_set() else [])
        member.reports.put(("assigned", member.number, len(partitions)))

    config = {"bootstrap.servers": member.bootstrap, "group.id": member.group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "log_level": 3, "partition.assignment.strategy": "roundrobin"})
    try:
        consumer.subscribe([member.topic], on_assign=assigned)
        while not member.start.is_set() and not member.stop.is_set():
            consumer.poll(0.02)
        consumer.assign(held)
        _poll(consumer, member)
    except Exception as error:  # noqa: BLE001  told by the parent, whatever it is
        member.reports.put(("failed", member.number, f"{type(error).__name__}: {error}"))
    finally:
        consumer.close()
        member.reports.put(("end", member.number, None))


def _poll(consumer: Any, member: Member) -> None:
    start_s, number, tally = time.monotonic(), 0, Tally()
    while not member.stop.is_set():
        before_ns = time.perf_counter_ns()
        messages = consumer.consume(_POLL_RECORDS, _POLL_SECONDS)
        taken_ns, now_s = time.perf_counter_ns() - before_ns, time.monotonic()
        while now_s >= start_s + (number + 1) * member.interval_seconds:
            member.reports.put(("tally", number, tally))
            number, tally = number + 1, Tally()
        if not messages:
            continue
        failed = next((message.error() for message in messages if message.error()), None)
        if failed:
            raise RuntimeError(str(failed))
        tally.note(taken_ns, len(messages), sum(len(message) for message in messages), now_s)
    member.reports.put(("tally", number, tally))


@dataclass
class Asked:
    """Whether a signal has asked for an early end. Its handler may not touch `Group.stop`: the main thread may hold the
    lock of that when the signal comes."""

    to_stop: bool = False


class Group:
    """All members and what they reported."""

    def __init__(self, options: argparse.Namespace, asked: Asked) -> None:
        """Start the members' processes."""
        context = multiprocessing.get_context("spawn")
        self._options = options
        self._asked = asked
        self._reports: Queue[Any] = context.Queue()
        self._start, self.stop = context.Event(), context.Event()
        self._left = options.members
        self._tallies: dict[int, list[Tally]] = {}
        self._printed = 0
        self.total = Tally()
        self.failures: list[str] = []
        where = (options.bootstrap, options.group, options.topic, options.interval)
        shared = (self._reports, self._start, self.stop)
        members = [Member(number, os.getpid(), *where, *shared) for number in range(options.members)]
        self._processes = [context.Process(target=_consume, args=(member,)) for member in members]
        for process in self._processes:
            process.start()  # by the main thread, with which they end

    def _take(self, seconds: float) -> tuple[str, int, Any] | None:
        try:
            report: tuple[str, int, Any] = self._reports.get(timeout=max(0.001, seconds))
        except queue.Empty:
            return None
        if report[0] == "failed":
            self.failures.append(f"member {report[1]}: {report[2]}")
        if report[0] == "end":
            self._left -= 1
        return report

    def settle(self, partitions: int) -> None:
        """Wait until the members hold every partition between them, and start the clock."""
        held: dict[int, int] = {}
        deadline = time.monotonic() + _JOIN_SECONDS
        while len(held) < self._options.members or sum(held.values()) != partitions:
            report = self._take(0.1)
            if report and report[0] == "assigned":
                held[report[1]] = report[2]
            if self.failures or self._asked.to_stop:
                return
            if time.monotonic() > deadline:
                self.failures.append(f"{len(held)} of {self._options.members} members joined in {_JOIN_SECONDS:g} s")
                return
        self.started_s, self.start_time = time.monotonic(), time.time()
        self._start.set()

    def run(self) -> None:
        """Print an interval when every member has told it; stop when the time is over."""
        end_s = self.started_s + self._options.seconds
        while self._left:
            if time.monotonic() >= end_s or self.failures or self._asked.to_stop:
                self.stop.set()
            report = self._take(min(0.1, end_s - time.monotonic()))
            if report and report[0] == "tally":
                self._tallies.setdefault(report[1], []).append(report[2])
            while len(self._tallies.get(self._printed, ())) == self._options.members:
                self._print_next()
        for _ in range(len(self._tallies)):
            self._print_next()

    def end(self) -> None:
        """Have all members leave the group; those that do not in time are killed."""
        self.stop.set()
        deadline = time.monotonic() + _END_SECONDS
        while self._left and time.monotonic() < deadline and any(each.is_alive() for each in self._processes):
            self._take(0.1)  # a member ends once its reports are read
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _print_next(self) -> None:
        """The oldest interval that was not printed yet."""
        number, tally = self._printed, Tally()
        for each in self._tallies.pop(number, ()):
            tally.add(each)
        self._printed += 1
        self.total.add(tally)
        start_s = self.start_time + number * self._options.interval
        if tally.polls:
            line = {"interval": number, "time_s": start_s, "seconds": self._options.interval, **tally.as_json()}
            print(json.dumps(line), flush=True)

    def result(self, partitions: int) -> dict[str, Any]:
        """The last line, as pbload has it."""
        total = self.total
        elapsed_s = max(total.last_s - self.started_s, 1e-9)
        return {
            "version": 1,
            "mode": "group-consume",
            "connections": self._options.members,
            "in_flight": 1,
            "partitions": partitions,
            "elapsed_s": elapsed_s,
            "requests_per_s": total.polls / elapsed_s,
            "mb_per_s": total.payload_bytes / elapsed_s / 1e6,
            **total.as_json(),
            "errors": {},
        }


def _partition_count(bootstrap: str, topic: str) -> int:
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3}).list_topics(topic, timeout=30).topics[topic]
    if found.error is not None:
        raise SystemExit(f"topic {topic}: {found.error}")
    return len(found.partitions)


def _delete_group(bootstrap: str, name: str) -> None:
    """Nobody needs the offsets of a group that was made for one run."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    try:
        admin.delete_consumer_groups([name], request_timeout=_DELETE_SECONDS)[name].result(2 * _DELETE_SECONDS)
    except (KafkaException, TimeoutError) as error:
        print(
            f"the group {name} stays: {error}. `pybroker groups delete --bootstrap-server {bootstrap} --group {name}` "
            "deletes it",
            file=sys.stderr,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; see the module's text for the status."""
    parser = argparse.ArgumentParser(prog="python -m pybroker.perf.group_consumers", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--delete-group", action="store_true")
    options = parser.parse_args(arguments)
    parent_pid = lifetime.named_parent()
    if parent_pid is not None:
        lifetime.end_with(parent_pid, signal.SIGTERM)
    asked = Asked()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(asked, "to_stop", True))
    partitions = _partition_count(options.bootstrap, options.topic)
    group = Group(options, asked)
    try:
        return _measure(group, asked, partitions)
    finally:
        group.end()
        if options.delete_group:
            _delete_group(options.bootstrap, options.group)


def _measure(group: Group, asked: Asked, partitions: int) -> int:
    group.settle(partitions)
    if group.failures or asked.to_stop:
        print("; ".join(group.failures) or "stopped before the members had joined", file=sys.stderr)
        return 1
    group.run()
    if group.failures:
        print("; ".join(group.failures), file=sys.stderr)
        return 1
    print(json.dumps(group.result(partitions)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
