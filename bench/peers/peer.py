"""One broker under measurement: started in its cgroup, filled, and loaded by pbload.

A `Peer` is owned by the run and closed by it. CPU is the cgroup's; without cgroups, the process's own.
Can fail: `LoadFailed` when pbload saw an error; the message holds its output.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.peers import stalls
from bench.peers.cgroup import Cgroup
from pybroker.perf import lifetime
from tests.harness import keeper
from tests.harness.process import ChildProcess

ROOT = Path(__file__).resolve().parents[2]
MEMORY_BYTES = 3 << 30
# Old segments go while a run lasts, so that it needs a bounded part of the disk; the same for both brokers.
COMMON_OVERRIDES = {
    "log.segment.bytes": str(256 << 20),
    "log.retention.bytes": str(1 << 30),
    "log.retention.check.interval.ms": "2000",
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "6000",
}

# For a small, paced load whose latency is the figure: without a CPU of its own it would count how long it waited for
# one. Needs root, as cgroups do.
PROBE_PRIORITY: tuple[str, ...] = ("--priority", "1") if os.geteuid() == 0 else ()


class Broker(Protocol):
    """The interface of an adapter's process: it is started when it is made, and may be started again on its dir."""

    port: int

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""

    @property
    def process(self) -> ChildProcess:
        """The running broker."""

    def start(self) -> object:
        """Start (again) and wait until it serves."""

    def stop(self) -> object:
        """A clean end."""

    def kill(self) -> None:
        """SIGKILL."""

    def rss_bytes(self) -> int:
        """Resident memory."""

    def cpu_seconds(self) -> float:
        """CPU time so far."""


#: The facts of a broker that serves, for the saved report.
Facts = Callable[[Any], Mapping[str, str]]


class LoadFailed(RuntimeError):
    """pbload reported an error: the figure would be none."""


@dataclass
class Measurement:
    """The figures of one run of pbload, and its cost to the broker."""

    load: dict[str, Any]
    cpu_seconds: float

    @property
    def mb_per_s(self) -> float:
        """Payload, in 10^6 bytes per second."""
        return float(self.load["mb_per_s"])

    @property
    def requests_per_s(self) -> float:
        """Answered requests per second."""
        return float(self.load["requests_per_s"])

    @property
    def requests(self) -> int:
        """How many requests were answered."""
        return int(self.load["requests"])

    @property
    def cpu_s_per_gb(self) -> float:
        """Broker CPU seconds per 10^9 bytes of payload."""
        return self.cpu_seconds / (float(self.load["payload_bytes"]) / 1e9)

    @property
    def cpu_us_per_request(self) -> float:
        """Broker CPU microseconds per request."""
        return self.cpu_seconds * 1e6 / self.requests

    def latency_us(self, quantile: str) -> float:
        """`quantile` is p50, p90, p99, p99.9 or max; of requests that no stall of the machine explains."""
        return stalls.latency_us(self.load, quantile)


def _json_line(words: Sequence[str], status: int, output: str, errors: str) -> dict[str, Any]:
    if status != 0:
        raise LoadFailed(f"{' '.join(words)} ended with status {status}: {errors.strip()} {output.strip()}")
    result: dict[str, Any] = json.loads(output)
    return result


def run_pbload(words: Sequence[str], cpu_seconds: Callable[[], float]) -> Measurement:
    """Run pbload to its end beside a server whose CPU time so far `cpu_seconds` tells."""
    before = cpu_seconds()
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=lifetime.environment())
    used = cpu_seconds() - before
    return Measurement(_json_line(words, done.returncode, done.stdout, done.stderr), used)


@dataclass
class BackgroundLoad:
    """A pbload that runs beside another one."""

    words: list[str]
    process: subprocess.Popen[str]

    def finish(self) -> dict[str, Any]:
        """Wait for its end and give its JSON line."""
        output, errors = self.process.communicate()
        return _json_line(self.words, self.process.returncode, output, errors)

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None


@dataclass
class Peer:
    """A running broker of one kind."""

    name: str
    broker: Broker
    cgroup: Cgroup | None
    directory: Path
    pbload: Path
    facts: Mapping[str, str] = field(default_factory=dict)
    load_prefix: Sequence[str] = ()
    #: Has the directory removed when the run is killed.
    kept: int | None = None

    def cpu_seconds(self) -> float:
        """CPU time so far."""
        return self.cgroup.cpu_seconds() if self.cgroup else self.broker.cpu_seconds()

    def words(self, arguments: Sequence[str]) -> list[str]:
        """pbload's command line against this broker."""
        return [*self.load_prefix, str(self.pbload), *arguments, "--port", str(self.broker.port)]

    def load(self, *arguments: str) -> Measurement:
        """Run pbload to its end."""
        return run_pbload(self.words(arguments), self.cpu_seconds)

    def load_beside(self, *arguments: str) -> BackgroundLoad:
        """Start pbload and go on."""
        words = self.words(arguments)
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=lifetime.environment())
        return BackgroundLoad(words, process)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Without a turn on a CPU, so that it is no part of what is measured."""
        self.broker.process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.broker.process.signal(signal.SIGCONT)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic that a shape is done with, so that the disk does not fill."""
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 3})
        for future in client.delete_topics([topic]).values():
            future.result(timeout=30)

    def close(self) -> None:
        """Stop the broker and remove what it left."""
        try:
            self.broker.stop()
        finally:
            if self.cgroup:
                self.cgroup.remove()
            shutil.rmtree(self.directory, ignore_errors=True)
            if self.kept is not None:
                keeper.done(self.kept)


@dataclass(frozen=True)
class Confinement:
    """The cgroup that a broker gets. `with_io`: its reads can be throttled."""

    memory_bytes: int = MEMORY_BYTES
    with_io: bool = False


USUAL = Confinement()


@dataclass(frozen=True)
class Site:
    """Where brokers are started: whose load they get, where their log dirs go, what they may take.

    CPUs are lists as taskset takes them, or None for all; pbload gets `load_cpus`.
    """

    pbload: Path
    data: Path
    with_cgroup: bool
    confinement: Confinement = USUAL
    broker_cpus: str | None = None
    load_cpus: str | None = None

    def start(self, name: str, broker: Callable[[Path, Sequence[str]], Broker], facts: Facts) -> Peer:
        """Start a broker: `broker` gets its log dir and the words to put before its command. `facts` tells what it is
        once it serves."""
        self.data.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=self.data))
        kept = keeper.keep("rm", "-rf", directory)
        cgroup = None
        if self.with_cgroup:
            group = f"pybroker-bench-{name}-{os.getpid()}"
            cgroup = Cgroup(group, self.confinement.memory_bytes, self.confinement.with_io)
        prefix = [*(cgroup.command_prefix() if cgroup else ()), *_pinned(self.broker_cpus)]
        started = broker(directory / "data", prefix)
        return Peer(name, started, cgroup, directory, self.pbload, facts(started), _pinned(self.load_cpus), kept)


def _pinned(cpus: str | None) -> list[str]:
    return ["taskset", "--cpu-list", cpus] if cpus else []
