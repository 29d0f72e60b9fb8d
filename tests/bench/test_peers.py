"""The table of peers: CPUs, cells, ratios, what two runs have to agree in, and rows for the pool."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench.peers.agreement import agreement, differences
from bench.peers.peer import Measurement, Peer, Site
from bench.peers.table import Figures, cpu_split
from bench.peers.table_loads import ACKS, FIGURES, NONE, loads
from bench.peers.table_text import cell, markdown
from pybroker.results.context import Context
from pybroker.results.reader import read
from pybroker.results.row import LOWER, Row

LOAD = {
    "version": 1,
    "mode": "produce",
    "requests": 1000,
    "requests_per_s": 200.0,
    "mb_per_s": 50.0,
    "payload_bytes": 2 * 10**9,
    "latency_us": {"p50": 10.0, "p99": 20.0, "p99.9": 30.0},
}
FACTS = {"pybroker-direct": {"io_backend": "io_uring", "append_engine": "direct", "durability": "none"}, "kafka": {}}


def figures() -> Figures:
    found = Figures()
    for durability, ours in ((NONE, [1.0, 2.0, 3.0]), (ACKS, [5.0, 5.0, 5.0])):
        for peer, values in (("pybroker-direct", ours), ("kafka", [8.0, 8.0, 10.0])):
            for value in values:
                found.add(peer, "produce", "CPU s/GB", LOWER, value, durability=durability)
    for value in (0.25, 0.5, 0.35):
        found.add("pybroker-direct", "start", "s", LOWER, value)
    return found


def test_cpus_are_split_in_halves_where_there_are_some() -> None:
    assert cpu_split([0, 1, 2, 3, 8]) == ("0,1", "2,3,8")
    assert cpu_split([4, 5]) == (None, "5")
    assert cpu_split([0]) == (None, "0")


def test_figures_of_a_measurement() -> None:
    one = Measurement(LOAD, cpu_seconds=3.0)
    found = {name: figure.value(one) for name, figure in FIGURES.items()}
    assert found == {
        "mb_per_s": 50.0,
        "cpu_s_per_gb": 1.5,
        "requests_per_s": 200.0,
        "cpu_us_per_request": 3000.0,
        "p50": 10.0,
        "p99": 20.0,
    }


def test_every_load_has_figures_that_are_known_and_a_name_of_its_own() -> None:
    everything = loads(10, 10)
    assert all(load.figures and set(load.figures) <= set(FIGURES) for load in everything)
    assert len({(load.name, load.durability) for load in everything}) == len(everything)
    assert {load.durability for load in everything} == {NONE, ACKS}
    durable = [load for load in everything if load.durability == ACKS]
    assert all("flush.messages=1" in load.words for load in durable)


@pytest.mark.parametrize(
    ("values", "digits", "text"),
    [
        ([1200.4, 1100, 1300], 0, "1,200 (1,100-1,300)"),
        ([0.4, 0.5, 0.6], 2, "0.50 (0.40-0.60)"),
        ([50], 0, "50.0 (50.0-50.0)"),
    ],
)
def test_cells(values: list[float], digits: int, text: str) -> None:
    assert cell(values, digits) == text


def test_the_table_keeps_durabilities_apart(tmp_path: Path) -> None:
    site = Site(Path("pbload"), tmp_path, with_cgroup=True, load_cpus="1")
    text = markdown(figures().rows, FACTS, site, tmp_path, 3, 5)
    written, durable, rest = text.split("\n\n| load |")[1:]
    assert "| produce | CPU s/GB | 2.00 (1.00-3.00) | 8.00 (8.00-10.00) | 0.25 |" in written
    assert "| produce | CPU s/GB | 5.00 (5.00-5.00) |" in durable and "| 0.62 |" in durable
    assert "| start | s | 0.35 (0.25-0.50) | - |" in rest
    assert "fsync" in text
    about = text.split("\n\n")[0]
    assert "3 GiB of memory each" in about.replace("\n", " ") and "the load on 1" in about.replace("\n", " ")
    assert max(map(len, about.splitlines())) <= 120


def saved(path: Path, rows: list[dict[str, Any]]) -> Path:
    measurement = {"peer": "pybroker-direct", "shape": "produce, durability acks", "cpu_s": 3.0, "durability": ACKS}
    measurements = [{**measurement, "load": LOAD}]
    document = {
        "version": 1,
        "time": "2026-01-02T03:04:05Z",
        "hardware": {"machine": "m"},
        "facts": FACTS,
        "sections": {},
        "measurements": measurements,
        "figures": rows,
    }
    path.write_text(json.dumps(document))
    return path


def test_two_runs_agree_where_their_ranges_meet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saved(tmp_path / "one.json", figures().rows)
    assert agreement(one, one) == 0
    other = figures()
    other.rows[0]["values"] = [2.9, 4.0, 5.0]  # from 1 to 3 in the first
    other.rows[4]["values"] = [0.52, 0.52, 0.52]  # up to 0.5 in the first, and 5 % around this
    assert agreement(one, saved(tmp_path / "two.json", other.rows)) == 0
    other.rows[0]["values"] = [3.5, 4.0, 5.0]
    assert agreement(one, saved(tmp_path / "two.json", other.rows)) == 1
    printed = capsys.readouterr().out
    assert "pybroker-direct, none, produce, CPU s/GB: 2 (1-3) and 4 (3.5-5)" in printed
    assert "4 of 5 figures agree" in printed
    assert differences({("a",): [1.0]}, {}) == ["a: only in one run"]


def test_the_pool_takes_it(tmp_path: Path) -> None:
    found = list(read([saved(tmp_path / "peers.json", figures().rows)], Context(), datetime.now(UTC)))
    rows = [row for row in found if isinstance(row, Row)]
    assert len(rows) == len(found)
    by_name = {row.benchmark: row for row in rows}
    start = by_name["start"]
    assert (start.value, start.unit, start.better, start.samples) == (0.35, "s", LOWER, 3)
    assert (start.parameters["peer"], start.engine, start.durability) == ("pybroker-direct", "direct", "none")
    # A topic's own durability goes before the broker's.
    assert by_name["produce, durability acks: cpu_s_per_gb"].durability == ACKS


def test_the_directory_for_log_dirs_is_made(tmp_path: Path) -> None:
    data = tmp_path / "not" / "there"
    site = Site(tmp_path, data, with_cgroup=False)
    peer: Peer = site.start("one", lambda log_dir, _prefix: Nobody(log_dir), lambda _: {})
    assert peer.directory.parent == data
    peer.close()
    assert list(data.iterdir()) == []


class Nobody:
    """A broker that does nothing."""

    port = 0
    bootstrap = ""

    def __init__(self, log_dir: Path) -> None:
        log_dir.mkdir(parents=True)

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Nothing runs."""

    def kill(self) -> None:
        raise NotImplementedError

    def rss_bytes(self) -> int:
        return 0

    def cpu_seconds(self) -> float:
        return 0.0
