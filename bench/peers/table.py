"""The tables of docs/speed.md: `make bench-peers`, or `python -m bench.peers.table`.

Each peer lives in a 3 GiB memory cgroup that was filled before. They take turns at the same loads, and while one is
measured the others stand still. A round is every load on every peer; the first one warms them up and does not count,
and half-way all start anew. As repetitions of one load lie minutes apart, their spread holds the machine's moods.
Figures are medians with the least and the greatest of all rounds. Needs root for the cgroups, or `--no-cgroup`.
`--agree A B` compares two saved runs instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.peers.adapters import ADAPTERS
from bench.peers.agreement import agreement
from bench.peers.cgroup import wants_cgroup
from bench.peers.log_sections import recovery_overrides, restart_seconds
from bench.peers.peer import Measurement, Peer, Site
from bench.peers.report import save
from bench.peers.run import FULL, QUICK, Effort, Run
from bench.peers.stalls import watched
from bench.peers.table_loads import FIGURES, TOPIC, TableLoad, loads
from bench.peers.table_text import markdown
from pybroker.perf.generator import find_generator
from pybroker.results.row import LOWER

ROUNDS = 6
#: How often brokers start anew: the next process of the same broker is another one by some per cent.
BLOCKS = 2
#: The seconds of each load in the round that does not count.
_WARMUP_SECONDS = 0.5
PARTS = ("loads", "starts", "recoveries")
_FETCH_FILL = ("produce", "--topic", TOPIC, "--batch-bytes", "64k", "--in-flight", "5")
#: Chosen so that the whole run takes 20 minutes. Measurements are short but many, since a figure varies more between
#: minutes and between starts of a broker than within some seconds.
_TABLE = replace(FULL, seconds=2, warmup_seconds=0.5, recovery_partitions=8, recovery_bytes=1 << 28)


@dataclass
class Figures:
    """The values measured once per round or start, by peer, load and figure, in the order of the rounds."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, peer: str, shape: str, title: str, better: str, value: float, **more: object) -> None:
        """One value more."""
        for row in self.rows:
            names = (row["peer"], row["shape"], row["metric"], row.get("durability"))
            if names == (peer, shape, title, more.get("durability")):
                row["values"].append(value)
                return
        self.rows.append({"peer": peer, "shape": shape, "metric": title, "better": better, "values": [value], **more})


def cpu_split(cpus: Sequence[int]) -> tuple[str | None, str]:
    """CPUs of the brokers and of the load. Halves, where there are four or more. With fewer the load keeps to the last
    one, and brokers have all: half of two would measure how a broker does with one."""
    half = len(cpus) // 2
    if len(cpus) >= 4:
        return ",".join(map(str, cpus[:half])), ",".join(map(str, cpus[half:]))
    return None, str(cpus[-1])


def _measure(run: Run, peer: Peer, load: TableLoad) -> Measurement:
    """One load on one peer, from a topic's creation to its deletion."""
    effort = run.effort
    if load.fill:
        peer.load(*_FETCH_FILL, "--bytes", effort.fetch_fill)
    if load.timed:
        peer.load(*load.words, "--seconds", str(effort.warmup_seconds))
    bounds = ("--seconds", str(effort.seconds)) if load.timed else ()
    with run.alone(peer):
        found = peer.load(*load.words, *bounds)
    if load.has_topic:
        peer.delete_topic(TOPIC)
    os.sync()  # dirty pages of one are never the next one's bill
    return found


def rounds(run: Run, figures: Figures, count: int, chosen: Sequence[TableLoad]) -> None:
    """Loads on all peers, `count` times and, but for a check of the benchmark, once before that does not count."""
    effort = run.effort
    for number in range(1 if effort is QUICK else 0, count + 1):
        run.effort = replace(effort, seconds=min(_WARMUP_SECONDS, effort.seconds)) if number == 0 else effort
        started_s = time.monotonic()
        for load in chosen:
            for peer in run.peers:
                found = _measure(run, peer, load)
                if number == 0:
                    continue
                run.note(peer, f"{load.name}, durability {load.durability}", found, durability=load.durability)
                for name in load.figures:
                    figure = FIGURES[name]
                    value = figure.value(found)
                    figures.add(peer.name, load.name, figure.title, figure.better, value, durability=load.durability)
                figures.add(peer.name, "RSS under these loads", "MB", LOWER, peer.broker.rss_bytes() / 1e6)
        what = f"round {number} of {count}" if number else "warm-up"
        print(f"{what}: {time.monotonic() - started_s:.0f} s", file=sys.stderr, flush=True)


def starts(site: Site, names: Sequence[str], figures: Figures, count: int) -> None:
    """How long until the first record is acknowledged, on a log dir that has some; and memory then."""
    for _ in range(count):
        for name in names:
            peer = ADAPTERS[name](site)
            try:
                peer.load("produce", "--topic", "first", "--bytes", "1")
                peer.broker.stop()
                started_s = time.monotonic()
                peer.broker.start()
                peer.load("produce", "--topic", "first", "--bytes", "1")
                figures.add(name, "start to first acknowledgement", "s", LOWER, time.monotonic() - started_s)
                figures.add(name, "RSS after the start", "MB", LOWER, peer.broker.rss_bytes() / 1e6)
            finally:
                peer.close()


def recoveries(site: Site, names: Sequence[str], figures: Figures, effort: Effort, count: int) -> None:
    """Start after SIGKILL with nothing flushed. Without cgroups: both read from memory what fits there."""
    size_gib = effort.recovery_partitions * effort.recovery_bytes / (1 << 30)
    shape = f"start after SIGKILL, {size_gib:.3g} GiB in {effort.recovery_partitions} partitions"
    for _ in range(count):
        for name in names:
            peer = ADAPTERS[name](replace(site, with_cgroup=False), overrides=recovery_overrides(effort))
            figures.add(name, shape, "s", LOWER, restart_seconds(peer, effort))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.table", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="everything once and small: a check of the benchmark")
    parser.add_argument("--peers", nargs="+", choices=list(ADAPTERS), default=list(ADAPTERS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="of the table (all)")
    parser.add_argument("--loads", nargs="+", metavar="TEXT", help="those alone whose names hold one of these")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, help="of each measurement (2)")
    parser.add_argument("--broker-cpus", help="taskset's list; the first half of four or more, else all")
    parser.add_argument("--load-cpus", help="taskset's list; the second half of four or more, else the last")
    parser.add_argument("--no-cgroup", action="store_true", help="without root: CPU of the process, memory unbounded")
    parser.add_argument("--data", type=Path, default=Path("build/bench/data"), help="where log dirs go")
    parser.add_argument("--output", type=Path, default=Path("build/bench/peers.json"), help="and beside it the .md")
    parser.add_argument("--agree", nargs=2, type=Path, metavar="JSON", help="compare two saved runs, measure nothing")
    return parser.parse_args(arguments)


def _peers(site: Site, names: Sequence[str], stack: ExitStack) -> Iterator[Peer]:
    for name in names:
        peer = ADAPTERS[name](site)
        stack.callback(peer.close)
        yield peer


def _site(options: argparse.Namespace) -> Site:
    broker_cpus, load_cpus = cpu_split(sorted(os.sched_getaffinity(0)))
    return Site(
        find_generator(),
        options.data,
        wants_cgroup(options.no_cgroup, options.quick),
        broker_cpus=options.broker_cpus or broker_cpus,
        load_cpus=options.load_cpus or load_cpus,
    )


def _chosen(options: argparse.Namespace, effort: Effort) -> list[TableLoad]:
    """The loads that were asked for; without any of such a name the command line is wrong."""
    everything = loads(effort.topic_count, effort.member_count)
    chosen = [load for load in everything if not options.loads or any(text in load.name for text in options.loads)]
    if not chosen:
        sys.exit(f"--loads: none holds {options.loads}; there are {', '.join(load.name for load in everything)}")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and save. Status 1 when two runs do not agree."""
    options = _options(arguments)
    if options.agree:
        return agreement(*options.agree)
    effort = QUICK if options.quick else _TABLE
    effort = replace(effort, seconds=options.seconds) if options.seconds else effort
    count = 1 if options.quick else options.rounds
    site, figures, started_s = _site(options), Figures(), time.monotonic()
    facts: dict[str, Any] = {name: {} for name in options.peers}
    raw: list[dict[str, Any]] = []
    if "starts" in options.parts:
        starts(site, options.peers, figures, min(3, count))
    if "loads" in options.parts:
        blocks = min(BLOCKS, count)
        for block in range(blocks):
            with ExitStack() as stack:
                stack.enter_context(watched(site.pbload))
                run = Run(list(_peers(site, options.peers, stack)), effort, raw)
                facts = {peer.name: dict(peer.facts) for peer in run.peers}
                run.fill()
                # The remainder goes to the last block.
                rounds(run, figures, (count + block) // blocks, _chosen(options, effort))
    if "recoveries" in options.parts:
        recoveries(site, options.peers, figures, effort, min(3, count))
    text = markdown(figures.rows, facts, site, options.data, count, effort.seconds)
    save(options.output, {}, facts, raw, options.data, figures.rows)
    options.output.with_suffix(".md").write_text(text)
    print(text)
    print(f"{time.monotonic() - started_s:.0f} s; saved in {options.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
