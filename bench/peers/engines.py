"""The table of append engines: `python -m bench.peers.engines`, which writes docs/append-engines.md.

Every engine that the broker offers, on both I/O backends, takes turns with Apache Kafka at the same loads while the
others stand still. The loads have four sizes of batches. They are acknowledged when written, when written with an
occasional sync, and when durable. Each broker lives in its own 3 GiB memory cgroup that 4 GB of produce have filled.
Figures are medians. Needs root for the cgroups; about twenty-five minutes.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.peers.adapters import kafka, pybroker
from bench.peers.cgroup import wants_cgroup
from bench.peers.peer import MEMORY_BYTES, ROOT, Measurement, Peer, Site
from bench.peers.report import save
from bench.peers.run import FULL, QUICK, Effort, Run, median
from bench.peers.stalls import watched
from pybroker import __version__
from pybroker.config.broker_keys import BROKER_KEYS
from pybroker.config.definition import OneOf
from pybroker.perf.generator import find_generator
from pybroker.profiles.facts import read_machine
from tests.harness.fixtures import io_uring_allowed

DOCUMENT = ROOT / "docs" / "append-engines.md"
# Settings of the topics for each durability. They are Kafka's own, so they mean the same to both. `flush.ms` would
# not: Kafka's broker looks at it only where `log.flush.scheduler.interval.ms` is set.
DURABILITIES: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "interval": ("--topic-config", "flush.messages=100000"),
    "acks": ("--topic-config", "flush.messages=1"),
}
TITLES = {
    "none": "Acknowledged when written (`pybroker.durability=none`; Kafka's default)",
    "interval": "Acknowledged when written, synced every 100 MB (`flush.messages=100000`, which means `interval`)",
    "acks": "Acknowledged when durable (`pybroker.durability=acks`; Kafka with `flush.messages=1`)",
}
QUANTILES = ("p50", "p99", "p99.9")
TABLE_HEAD = (
    "| broker | MB/s | CPU s/GB | p50 ms | p99 ms | p99.9 ms |",
    "|---|---:|---:|---:|---:|---:|",
)
IN_FLIGHT = 5


@dataclass(frozen=True)
class Load:
    """Batches of one size."""

    name: str
    connections: int
    batch: str

    @property
    def flags(self) -> tuple[str, ...]:
        """pbload's arguments."""
        counts = ("--connections", str(self.connections), "--in-flight", str(IN_FLIGHT))
        return ("produce", *counts, "--batch-bytes", self.batch)


LOADS = (Load("16 KiB", 4, "16k"), Load("64 KiB", 1, "64k"), Load("256 KiB", 1, "256k"), Load("1 MiB", 1, "1m"))


def engines() -> list[str]:
    """The values of the broker's setting, without the word that leaves the choice to the profile."""
    accepted = BROKER_KEYS["pybroker.append.engine"].validator
    assert isinstance(accepted, OneOf)
    return [name for name in accepted.values if name != "auto"]


def start_peers(stack: ExitStack, pbload: Path, data: Path, with_cgroup: bool, backends: Sequence[str]) -> list[Peer]:
    """One broker for each engine and backend, and Apache Kafka; `stack` closes them."""
    site = Site(pbload, data, with_cgroup)
    peers = []
    for engine in engines():
        for backend in backends:
            name = f"pybroker-{engine}-{backend}"
            peer = pybroker.start(site, backend=backend, engine=engine, name=name)
            stack.callback(peer.close)
            if (peer.facts["append_engine"], peer.facts["io_backend"]) != (engine, backend):
                raise RuntimeError(f"{name} was asked for, and this runs: {peer.facts['ready_line']}")
            peers.append(peer)
    theirs = kafka.start(site)
    stack.callback(theirs.close)
    return [*peers, theirs]


def label(peer: Peer) -> str:
    """How the table calls it."""
    if "append_engine" in peer.facts:
        return f"pybroker, `{peer.facts['append_engine']}`, {peer.facts['io_backend']}"
    return f"Apache Kafka {peer.facts['version']}"


@dataclass(frozen=True)
class Line:
    """The results of one broker under one load: medians, latencies in milliseconds."""

    durability: str
    load: Load
    broker: str
    mb_per_s: float
    cpu_s_per_gb: float
    latencies_ms: Sequence[float]

    @classmethod
    def of(cls, durability: str, load: Load, broker: str, found: Sequence[Measurement]) -> Line:
        """The medians of some measurements."""
        latencies = [statistics.median(one.latency_us(quantile) for one in found) / 1000 for quantile in QUANTILES]
        rate, cost = median(found, lambda one: one.mb_per_s), median(found, lambda one: one.cpu_s_per_gb)
        return cls(durability, load, broker, rate, cost, latencies)

    def markdown(self) -> str:
        """A row of the table."""
        cells = [self.broker, f"{self.mb_per_s:.0f}", f"{self.cpu_s_per_gb:.2f}"]
        cells += [f"{latency:.2f}" for latency in self.latencies_ms]
        return f"| {' | '.join(cells)} |"


def measure(run: Run) -> Iterator[Line]:
    """Every load over all peers, which take turns."""
    effort = run.effort
    bounds = ("--seconds", str(effort.seconds), "--bytes", "4g")
    for durability, config in DURABILITIES.items():
        for load in LOADS:
            topic = f"load-{durability}-{load.batch}"
            words = (*load.flags, "--topic", topic, *config)
            for peer in run.peers:
                peer.load(*words, "--seconds", str(effort.warmup_seconds))
            results = run.alternate(f"{durability}, {load.name}", partial(_load, (*words, *bounds)))
            for peer in run.peers:
                peer.delete_topic(topic)
                yield Line.of(durability, load, label(peer), results[peer.name])


def _load(words: Sequence[str], peer: Peer) -> Measurement:
    return peer.load(*words)


def markdown(lines: Sequence[Line], data: Path, effort: Effort) -> str:
    """The whole document."""
    version, date = platform.release().partition("-")[0], time.strftime("%Y-%m-%d", time.gmtime())
    cpu = read_machine([]).cpu
    about = (
        f"Written by `python -m bench.peers.engines`: pybroker {__version__} on {date}, {cpu.online_count} CPUs "
        f"({cpu.model}), Linux {version}, {_file_system(data)}. The load generator runs on the same CPUs. Each broker "
        f"has a memory cgroup of {MEMORY_BYTES >> 30} GiB, filled before. They take turns, the others "
        f"standing still, {effort.repetitions} times, each for {effort.seconds:g} s or 4 GiB; figures are medians. MB "
        "and GB are 10^6 and 10^9 bytes of "
        "payload, CPU is that of the cgroup, kernel threads that work for the broker included. Latencies leave "
        "out what stalls of the machine explain ([benchmarks](benchmarks.md))."
    )
    meaning = (
        "What an engine is: [ADR 0005](adr/0005-append-engines.md). What an acknowledgement promises: [ADR "
        "0006](adr/0006-durability-has-a-name.md)."
    )
    out = ["# Append engines, measured"]
    out += ["", *textwrap.wrap(about, 120), "", *textwrap.wrap(meaning, 120, break_on_hyphens=False)]
    for durability, title in TITLES.items():
        out += ["", f"## {title}"]
        for load in LOADS:
            rows = [line.markdown() for line in lines if (line.durability, line.load) == (durability, load)]
            connections = "1 connection" if load.connections == 1 else f"{load.connections} connections"
            out += [
                "",
                f"Batches of {load.name}, {connections} with {IN_FLIGHT} requests in flight:",
                "",
                *TABLE_HEAD,
                *rows,
            ]
    return "\n".join(out) + "\n"


def _file_system(data: Path) -> str:
    words = ["findmnt", "--noheadings", "--output", "FSTYPE,SOURCE", "--target", str(data)]
    kind, source = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return f"{kind} on {source}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all, print each line as it is there, write the document and the JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.engines", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="everything once and small: a check of the benchmark")
    parser.add_argument("--no-cgroup", action="store_true", help="without root: CPU of the process, memory unbounded")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where log dirs go")
    parser.add_argument("--document", type=Path, help="what is written; docs/append-engines.md, with --quick nothing")
    parser.add_argument("--output", type=Path, default=Path("build/bench/engines.json"))
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    backends = ["io_uring", "epoll"] if io_uring_allowed() else ["epoll"]
    pbload = find_generator()
    with ExitStack() as stack:
        stack.enter_context(watched(pbload))
        with_cgroup = wants_cgroup(options.no_cgroup, options.quick)
        run = Run(start_peers(stack, pbload, options.data, with_cgroup, backends), effort)
        run.fill()
        lines = []
        for line in measure(run):
            print(f"{line.durability:8} {line.load.name:8} {line.markdown()}", flush=True)
            lines.append(line)
        save(options.output, {}, {peer.name: dict(peer.facts) for peer in run.peers}, run.raw, options.data)
    document = options.document or (None if options.quick else DOCUMENT)
    if document:
        document.write_text(markdown(lines, options.data, effort))
    return 0


if __name__ == "__main__":
    sys.exit(main())
