"""Loads a running broker, path by path, and holds what it does against the bound.

Blocking; a path first runs a while without being counted. Each path has a topic of its own on that broker, which is
deleted afterwards, whatever happens to the run, a kill included (`Sweeper`). Failures: `RefusedError`, `NativeError`
(an answer was an error), OSError.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pybroker.native.measure import Exchange, Measure, RunResult, Stop
from pybroker.profiles.limit import load, process
from pybroker.profiles.limit.bound import Bound, bound_of
from pybroker.profiles.limit.connection import Connection, RefusedError, expect
from pybroker.profiles.limit.load import FETCH_PATHS, FETCHED, PRODUCE_PATHS, FetchPath, ProducePath
from pybroker.profiles.limit.sweeper import Sweeper, delete_topic
from pybroker.profiles.measurement.plan import MIB
from pybroker.profiles.measurement.result import Figures, Measurement, figures_of
from pybroker.protocol import messages as m

Report = Callable[[str, float], None]

_WARM_UP_SHARE = 0.3
_TIMEOUT_MS = 30_000
_LOOK_SECONDS = 0.05
_TRIES = 10
_TOPIC = 2
"""The resource type."""
_DURABLE = {"flush.messages": "1", "pybroker.durability": "acks"}
_SHARE_OF_FREE = 16
_PATH_MIN_BYTES = 64 * MIB
_PATH_MAX_BYTES = 8 << 30
_UNKNOWN_BYTES = -1


@dataclass(frozen=True, slots=True)
class PathLimit:
    """A path: what the broker did, and what cannot be surpassed. CPU figures are None where nobody may see the broker's
    process."""

    name: str
    figures: Figures
    cpu_seconds_per_gb: float | None
    bound: Bound

    @property
    def rate_share(self) -> float | None:
        """The share of the bound on bytes per second; 1 is all of it."""
        most = self.bound.bytes_per_second
        return None if most is None else self.figures.bytes_per_second / most

    @property
    def cpu_share(self) -> float | None:
        """The least CPU as a share of what the broker took; 1 is nothing more than the least."""
        least = self.bound.cpu_seconds_per_gb
        return None if least is None or not self.cpu_seconds_per_gb else least / self.cpu_seconds_per_gb

    @property
    def latency_share(self) -> float | None:
        """The least time of one request as a share of the broker's; 1 is nothing more than the least."""
        return None if self.bound.p50_us is None else self.bound.p50_us / self.figures.p50_us

    def as_dict(self) -> dict[str, Any]:
        """The same as objects of JSON."""
        figures, bound = self.figures, self.bound
        return {
            "path": self.name,
            "bytes_per_second": figures.bytes_per_second,
            "cpu_seconds_per_gb": self.cpu_seconds_per_gb,
            **{name: getattr(figures, name) for name in ("p50_us", "p99_us", "p999_us", "max_us")},
            "limit_bytes_per_second": bound.bytes_per_second,
            "limit_bound_by": bound.bound_by,
            "limit_cpu_seconds_per_gb": bound.cpu_seconds_per_gb,
            "limit_p50_us": bound.p50_us,
            "rate_share": self.rate_share,
            "cpu_share": self.cpu_share,
            "latency_share": self.latency_share,
        }


class Limit:
    """One comparison. `pid`: the broker's process; None: whoever listens on the port."""

    def __init__(
        self,
        connection: Connection,
        measurement: Measurement,
        stop: Stop,
        *,
        seconds: float,
        is_durable: bool,
        pid: int | None = None,
    ) -> None:
        """`is_durable`: have acknowledgements wait for the disk, whatever the broker does by default."""
        if not connection.is_local:
            raise RefusedError(
                f"{connection.host} is another machine: its limits are not those measured here; run this command there"
            )
        self._connection = connection
        self._measurement = measurement
        self._stop = stop
        self._seconds_each = seconds / (len(PRODUCE_PATHS) + len(FETCH_PATHS))
        #: Whether they do; told by the broker once a topic is made.
        self.is_durable = is_durable
        self._pid = process.listening_pid(connection.port) if pid is None else pid
        self._done = 0
        self._report: Report = lambda _name, _share: None

    @property
    def sees_process(self) -> bool:
        """Whether the broker's CPU time can be told."""
        return self._pid is not None

    def run(self, report: Report) -> list[PathLimit]:
        """All paths. Blocking."""
        self._report = report
        max_bytes = self._path_bytes()
        limits = []
        where = (self._connection.host, self._connection.port)
        with Sweeper(*where) as sweeper, Measure("auto", self._stop) as measure:
            for path in PRODUCE_PATHS:
                with self._topic(sweeper) as topic:
                    now_ms = int(time.time() * 1000)
                    produced = load.produce(path, topic, self._connection.host, self._connection.port, now_ms)
                    limits.append(self._path(measure, path, produced, max_bytes))
                    if path is FETCHED:
                        limits += self._fetches(measure, topic, produced)
        self._report("done", 1.0)
        return limits

    def _fetches(self, measure: Measure, topic: str, produced: Exchange) -> Iterator[PathLimit]:
        """Fetches the records of `produced`; a slow broker is given more of them first."""
        for path in FETCH_PATHS:
            for _ in range(_TRIES):
                end_offset = min(self._end_offsets(topic))
                exchange = load.fetch(path, topic, self._connection.host, self._connection.port, end_offset)
                if end_offset >= exchange.counter_step or self._stop.is_set:
                    break
                measure.exchange(produced, self._seconds_each)
            else:
                raise RefusedError(f"{topic} got only {end_offset} records; {path.name} needs more time (--seconds)")
            yield self._path(measure, path, exchange, 0)

    def _path(self, measure: Measure, path: ProducePath | FetchPath, exchange: Exchange, max_bytes: int) -> PathLimit:
        self._report(path.name, self._done / (len(PRODUCE_PATHS) + len(FETCH_PATHS)))
        self._done += 1
        warm_up_bytes = int(max_bytes * _WARM_UP_SHARE)
        measure.exchange(exchange, self._seconds_each * _WARM_UP_SHARE, warm_up_bytes)
        result, used_ns = self._measured(measure, exchange, max_bytes - warm_up_bytes)
        if self._stop.is_set:
            raise RefusedError("stopped")
        figures = figures_of(f"{path.name} of a broker", result, used_ns)
        return PathLimit(
            path.name,
            figures,
            None if used_ns is None else figures.cpu_seconds_per_gb,
            bound_of(path, self._measurement, is_durable=self.is_durable),
        )

    def _measured(self, measure: Measure, exchange: Exchange, max_bytes: int) -> tuple[RunResult, int | None]:
        """The result, and the CPU time that the broker used meanwhile."""
        seconds = self._seconds_each * (1 - _WARM_UP_SHARE)
        if self._pid is None:
            return measure.exchange(exchange, seconds, max_bytes), None
        before_ns = process.cpu_ns(self._pid)
        result = measure.exchange(exchange, seconds, max_bytes)
        return result, process.cpu_ns(self._pid) - before_ns

    def _path_bytes(self) -> int:
        """How much one path may write."""
        request = m.DescribeLogDirsRequest(topics=[])
        dirs = self._connection.call(request, 4).results
        free = min((each.usable_bytes for each in dirs if each.usable_bytes != _UNKNOWN_BYTES), default=None)
        if free is None:
            raise RefusedError("the broker does not say how much room its log dirs have")
        if free // _SHARE_OF_FREE < _PATH_MIN_BYTES:
            raise RefusedError(
                f"the broker's log dirs have {free >> 20} MiB free; {_PATH_MIN_BYTES * _SHARE_OF_FREE >> 20} are wanted"
            )
        return min(_PATH_MAX_BYTES, int(free // _SHARE_OF_FREE))

    @contextmanager
    def _topic(self, sweeper: Sweeper) -> Iterator[str]:
        name = f"pybroker-limit-{secrets.token_hex(4)}"
        node_id = self._node_id()
        assignment = m.CreateTopicsRequest.CreatableReplicaAssignment
        config = m.CreateTopicsRequest.CreatableTopicConfig
        configs = {"file.delete.delay.ms": "0", **({"flush.messages": "1"} if self.is_durable else {})}
        topic = m.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assignment(partition_index=i, broker_ids=[node_id]) for i in range(load.PARTITION_COUNT)],
            configs=[config(name=key, value=value) for key, value in configs.items()],
        )
        sweeper.add(name)
        answer = self._connection.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS), 7)
        if answer.topics[0].error_code != 0:
            sweeper.done(name)
        expect(answer.topics[0].error_code, f"creating the topic {name}")
        try:
            self._await_leaders(name)
            self.is_durable = self._waits_for_disk(name)
            yield name
        finally:
            with suppress(OSError, RefusedError):  # the sweeper tries again by itself, and tells of a failure
                delete_topic(self._connection, name)
                sweeper.done(name)

    def _waits_for_disk(self, topic: str) -> bool:
        """Whether the topic's acknowledgements are durable, by its own settings or the broker's."""
        wanted = m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=topic, configuration_keys=[*_DURABLE]
        )
        (row,) = self._connection.call(m.DescribeConfigsRequest(resources=[wanted]), 4).results
        expect(row.error_code, f"the settings of {topic}")
        return any(_DURABLE[each.name] == each.value for each in row.configs)

    def _node_id(self) -> int:
        """The id of the broker at the other end: the one that advertises this port, or the only one."""
        brokers = self._connection.call(m.MetadataRequest(topics=[]), 12).brokers
        found = [each for each in brokers if each.port == self._connection.port] or list(brokers)
        if len(found) != 1:
            raise RefusedError(f"which of {len(found)} brokers listens on port {self._connection.port} is not clear")
        return int(found[0].node_id)

    def _await_leaders(self, topic: str) -> None:
        """Until the broker itself answers for every partition: metadata may be ahead of it."""
        until = time.monotonic() + _TIMEOUT_MS / 1000
        while any(row.error_code != 0 for row in self._ends(topic)):
            if time.monotonic() > until:
                raise RefusedError(f"the broker does not come to lead the topic {topic}")
            time.sleep(_LOOK_SECONDS)

    def _end_offsets(self, topic: str) -> list[int]:
        rows = self._ends(topic)
        for row in rows:
            expect(row.error_code, f"the end of {topic}-{row.partition_index}")
        return [row.offset for row in rows]

    def _ends(self, topic: str) -> list[Any]:
        """The answer of ListOffsets for each partition."""
        wanted = [
            m.ListOffsetsRequest.ListOffsetsPartition(partition_index=each, timestamp=-1)
            for each in range(load.PARTITION_COUNT)
        ]
        topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=wanted)]
        answer = self._connection.call(m.ListOffsetsRequest(replica_id=-1, topics=topics), 7)
        return list(answer.topics[0].partitions)
