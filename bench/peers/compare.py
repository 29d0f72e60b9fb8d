"""pybroker beside Apache Kafka in one run: `python -m bench.peers.compare`.

Each broker lives in its own 3 GiB memory cgroup that 4 GB of produce have filled; repetitions alternate, the other
brokers standing still. The rows and every measurement are saved as JSON. The status is 1 when a row fails (never with
`--quick`: its figures mean nothing).
`--ours kafka` puts Apache Kafka on both sides: the check that the comparison itself is fair.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.peers.adapters import kafka, pybroker
from bench.peers.catch_up import catch_up
from bench.peers.cgroup import wants_cgroup
from bench.peers.control import control_plane
from bench.peers.durable import durable
from bench.peers.log_sections import LOG_SECTIONS, LogBench
from bench.peers.peer import Peer, Site
from bench.peers.replication import replication
from bench.peers.report import Row, Section, save, text_table, verdict
from bench.peers.run import FULL, QUICK, Effort, Run
from bench.peers.speed import huge_producer, rdkafka_producers, throughput
from bench.peers.stalls import watched
from bench.peers.targets import targets
from pybroker.perf.generator import find_generator

SECTIONS: dict[str, Callable[[Run], dict[str, list[Row]]]] = {
    "throughput": throughput,
    "huge-producer": lambda run: {"huge producer": huge_producer(run)},
    "rdkafka": lambda run: {"librdkafka producers": rdkafka_producers(run)},
    "control": lambda run: {"control plane": control_plane(run)},
}
# Sections that start brokers of their own, and what stands on the other side.
OWN_SECTIONS: Mapping[str, tuple[str, Callable[[LogBench], list[Row]]]] = {
    **LOG_SECTIONS,
    "durable": ("against", durable),
    "catch-up": ("without", catch_up),
    "targets": ("against", targets),
    "replication": ("kafka", replication),
}
ALL_SECTIONS = [*SECTIONS, *OWN_SECTIONS]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.compare", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="everything once and small: a check of the benchmark itself"
    )
    parser.add_argument("--sections", nargs="+", choices=ALL_SECTIONS, default=ALL_SECTIONS)
    parser.add_argument("--ours", choices=["pybroker", "kafka"], default="pybroker", help="what stands on our side")
    parser.add_argument("--backend", default="io_uring", help="our I/O backend: auto, io_uring or epoll")
    parser.add_argument("--engine", default="auto", help="our append engine: auto, or a name that the broker knows")
    parser.add_argument("--other-backend", default="epoll", help="our third peer's backend; 'none' leaves it out")
    parser.add_argument("--no-cgroup", action="store_true", help="without root: CPU of the process, memory unbounded")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where log dirs go")
    parser.add_argument("--history-gb", type=float, help="catch-up: how much of it there is to read (1.6)")
    parser.add_argument("--output", type=Path, default=Path("build/bench/compare.json"))
    return parser.parse_args(arguments)


def _start(options: argparse.Namespace, pbload: Path, stack: ExitStack) -> list[Peer]:
    site = Site(pbload, options.data, wants_cgroup(options.no_cgroup, options.quick))
    peers: list[Peer] = []

    def add(peer: Peer) -> None:
        stack.callback(peer.close)
        peers.append(peer)

    if options.ours == "kafka":
        add(kafka.start(site, name="kafka-too"))
    else:
        add(pybroker.start(site, backend=options.backend, engine=options.engine))
    add(kafka.start(site))
    if options.ours == "pybroker" and options.other_backend != "none":
        add(pybroker.start(site, backend=options.other_backend, engine=options.engine))
    return peers


def _shared(options: argparse.Namespace, pbload: Path, sections: dict[str, Section]) -> Run | None:
    """The sections that load the same brokers, one after the other; None when none of them is asked for."""
    names = [name for name in options.sections if name in SECTIONS]
    if not names:
        return None
    with ExitStack() as stack:
        run = Run(_start(options, pbload, stack), _effort(options))
        print(f"peers: {_facts(run)}", flush=True)
        run.fill()
        for name in names:
            for section, rows in SECTIONS[name](run).items():
                if not rows:  # of a peer that was left out
                    continue
                theirs = {"backends": run.peers[0].name, "huge producer": "quiet"}.get(section, "kafka")
                ours = run.peers[2].name if section == "backends" else run.peers[0].name
                _show(sections, section, rows, ours, theirs)
    return run


def _effort(options: argparse.Namespace) -> Effort:
    effort = QUICK if options.quick else FULL
    return replace(effort, history_bytes=int(options.history_gb * 1e9)) if options.history_gb else effort


def _facts(run: Run) -> dict[str, dict[str, str]]:
    return {peer.name: dict(peer.facts) for peer in run.peers}


def _show(sections: dict[str, Section], section: str, rows: list[Row], ours: str, theirs: str) -> None:
    if rows:
        sections[section] = Section(ours, theirs, rows)
        print(f"\n{section}\n{text_table(rows, ours, theirs)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; see the module's text for the status."""
    options = _options(arguments)
    sections: dict[str, Section] = {}
    pbload = find_generator()
    bench = LogBench(
        pbload,
        options.data,
        options.backend,
        wants_cgroup(options.no_cgroup, options.quick),
        _effort(options),
        options.engine,
    )
    with watched(pbload):
        run = _shared(options, pbload, sections)
        for name in options.sections:
            if name in OWN_SECTIONS:
                theirs, measure = OWN_SECTIONS[name]
                _show(sections, name, measure(bench), f"pybroker-{options.backend}", theirs)
    facts = {**(_facts(run) if run else {}), **bench.facts}
    save(options.output, sections, facts, [*(run.raw if run else []), *bench.raw], options.data)
    return verdict(sections, options.output, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
