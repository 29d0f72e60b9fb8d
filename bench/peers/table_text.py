"""The table of peers as Markdown. Pure: values go in, text comes out."""

from __future__ import annotations

import platform
import statistics
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.peer import Site
from bench.peers.table_loads import FIGURES, PROMISES
from pybroker import __version__
from pybroker.profiles.facts import read_machine

#: The peer that others are held against, when it is there.
REFERENCE = "kafka"
_DIGITS = {figure.title: figure.digits for figure in FIGURES.values()} | {"s": 2, "MB": 0}


def cell(values: Sequence[float], digits: int) -> str:
    """The median, and between which values all lie."""
    middle, low, high = statistics.median(values), min(values), max(values)
    # Small figures keep three digits that say something.
    digits = max(digits, 2 if high < 10 else 1 if high < 100 else 0)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def _ratio(ours: Sequence[float] | None, theirs: Sequence[float] | None) -> str:
    if not ours or not theirs or statistics.median(theirs) == 0:
        return "-"
    return f"{statistics.median(ours) / statistics.median(theirs):.2f}"


def _rows(rows: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> list[str]:
    """Lines of a table, one for each figure of each load."""
    by_line: dict[tuple[str, str], dict[str, Sequence[float]]] = {}
    for row in rows:
        by_line.setdefault((row["shape"], row["metric"]), {})[row["peer"]] = row["values"]
    others = [peer for peer in peers if peer != REFERENCE and REFERENCE in peers]
    lines = [
        f"| load | | {' | '.join(peers)} |{''.join(f' {peer} / {REFERENCE} |' for peer in others)}",
        f"|---|---|{'---:|' * (len(peers) + len(others))}",
    ]
    before = ""
    for (shape, metric), values in by_line.items():
        cells = [cell(values[peer], _DIGITS[metric]) if peer in values else "-" for peer in peers]
        ratios = [_ratio(values.get(peer), values.get(REFERENCE)) for peer in others]
        lines.append(f"| {'' if shape == before else shape} | {metric} | {' | '.join([*cells, *ratios])} |")
        before = shape
    return lines


def _about(facts: Mapping[str, Mapping[str, str]], site: Site, data: Path, rounds: int, seconds: float) -> str:
    machine = read_machine([data.resolve()])
    disk = machine.storage[0]
    version = platform.release().partition("-")[0]
    memory = (
        f"{site.confinement.memory_bytes >> 30} GiB of memory each, filled before" if site.with_cgroup else "no bound"
    )
    names = {name: ", ".join(each[key] for key in _FACTS if key in each) for name, each in facts.items()}
    return (
        f"pybroker {__version__}, {time.strftime('%Y-%m-%d', time.gmtime())}; {machine.cpu.online_count} CPUs "
        f"({machine.cpu.model}), Linux {version}, {disk.file_system}, loopback; "
        f"brokers on CPUs {site.broker_cpus or 'all'}, the load on {site.load_cpus or 'all'}; {memory}. "
        f"{'; '.join(f'{name}: {text}' for name, text in names.items())}. "
        f"Median (least-greatest) of {rounds} rounds of {seconds:g} s. MB and GB are 10^6 and 10^9 bytes of payload; "
        "CPU is that of the broker's cgroup. 4 x 5: four connections with five requests in flight each."
    )


_FACTS = ("version", "profile", "io_backend", "append_engine")


def markdown(
    rows: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Mapping[str, str]],
    site: Site,
    data: Path,
    rounds: int,
    seconds: float,
) -> str:
    """The whole text."""
    peers = list(facts)
    out = textwrap.wrap(_about(facts, site, data, rounds, seconds), 120, break_on_hyphens=False)
    for durability, promise in PROMISES.items():
        found = [row for row in rows if row.get("durability") == durability]
        if found:
            out += ["", f"Acknowledged when {promise}:", "", *_rows(found, peers)]
    found = [row for row in rows if "durability" not in row]
    if found:
        out += ["", "Memory, start and recovery:", "", *_rows(found, peers)]
    return "\n".join(out) + "\n"
