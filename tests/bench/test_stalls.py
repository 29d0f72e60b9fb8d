"""Stalls of the machine: what counts as one, and what a load leaves out for it."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.peers import stalls
from bench.peers.machine import BareServer
from pybroker.perf.generator import find_generator

MS = 1_000_000
HOUR = 3_600_000 * MS
MARGIN = 5 * MS

Late = tuple[int, float, float]
"""A CPU, and from when to when it ran nothing: milliseconds from now on."""


def write(path: Path, now_ns: int, lates: Sequence[Late], stolen_ms: float) -> None:
    """What a witness of two CPUs would have written; all that is stolen comes with the last line."""
    # Nothing was before the machine was started.
    spans = [(cpu, max(1, now_ns + int(start * MS)), max(2, now_ns + int(end * MS))) for cpu, start, end in lates]
    lines = [f"late {cpu} {start_ns} {end_ns} 500\n" for cpu, start_ns, end_ns in spans]
    if lines:
        lines[-1] = lines[-1].replace(" 500\n", f" {500 + int(stolen_ms * MS)}\n")
    path.write_text("watches 2 CPUs, 500 stolen\n" + "".join(lines))


def found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lates: Late, stolen_ms: float | None = None
) -> list[tuple[float, float]]:
    """The stalls that these come to, without their margins: milliseconds. All was stolen, if nothing else is said."""
    path = tmp_path / "witness"
    write(path, 0, (), 0)
    monkeypatch.setenv(stalls.VARIABLE, str(path))
    with stalls.stalls_meanwhile(find_generator()) as windows:
        now_ns = time.monotonic_ns()
        stolen = sum(end - start for _, start, end in lates) if stolen_ms is None else stolen_ms
        write(path, now_ns, lates, stolen)
    return [((start + MARGIN - now_ns) / MS, (end - MARGIN - now_ns) / MS) for start, end in windows]


def test_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(stalls.VARIABLE, raising=False)
    with stalls.stalls_meanwhile(find_generator()) as windows:
        pass
    assert windows == []


def test_the_kernel_may_keep_a_cpu_for_some_milliseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path, monkeypatch, (0, 100, 107.9), (1, 108, 115)) == []
    assert found(tmp_path, monkeypatch, (1, 100, 108)) == [(100, 108)]


def test_all_cpus_together_are_taken_for_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path, monkeypatch, (0, 100, 104), (1, 102, 105)) == [(102, 104)]
    assert found(tmp_path, monkeypatch, (0, 100, 104), (1, 102.5, 105)) == []
    assert found(tmp_path, monkeypatch, (0, 100, 104), (0, 101, 105)) == []


def test_what_meets_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lates = ((0, 100, 130), (1, 102, 131), (1, 135, 145), (0, 200, 210))
    assert found(tmp_path, monkeypatch, *lates) == [(100, 145), (200, 210)]


def test_what_was_before_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago_ms = -HOUR / MS
    lates = ((0, long_ago_ms, long_ago_ms + 100), (1, 100, 110))
    assert found(tmp_path, monkeypatch, *lates, stolen_ms=10) == [(100, 110)]


def test_a_kernel_that_counts_nothing_stolen_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker could keep CPUs as well."""
    assert found(tmp_path, monkeypatch, (0, 100, 130), (1, 100, 130), stolen_ms=0) == []
    assert found(tmp_path, monkeypatch, (0, 100, 400), (1, 100, 400), stolen_ms=400) == []
    assert found(tmp_path, monkeypatch, (0, 100, 400), (1, 100, 400), stolen_ms=560) == [(100, 400)]


def test_a_stall_explains_what_it_is_half_of() -> None:
    windows = [(20, 30), (40, 50)]
    explained = [(21, 25), (10, 30), (25, 35), (20, 60)]
    assert [span for span in explained if not stalls.explains(windows, span)] == []
    for span in ((0, 10), (9, 29), (30, 40), (0, 60), (55, 55)):
        assert not stalls.explains(windows, span), span
    assert not stalls.explains([], (0, 10))


def test_which_latencies_count() -> None:
    load: dict[str, Any] = {"latency_us": {"p99": 20.0}, "produce_latency_us": {"p99": 3}}
    assert stalls.latency_us(load, "p99") == 20
    assert stalls.latency_us(load, "p99", "produce_latency") == 3
    load["latency_undisturbed_us"] = {"p99": 7.0}
    assert stalls.latency_us({**load, "latency_undisturbed_share": 0.5}, "p99") == 7
    assert stalls.latency_us({**load, "latency_undisturbed_share": 0.49}, "p99") == 20


def load_beside(path: Path, stolen_ms: float) -> dict[str, Any]:
    """A load of 0.2 s on a machine that stands still again and again from now on, each time for an hour."""
    lates = [(0, start_ms, start_ms + HOUR / MS) for start_ms in range(0, 60_000, 50)]
    with BareServer(find_generator()) as bare:
        write(path, time.monotonic_ns(), lates, stolen_ms)
        return bare.load("produce", "--batch-bytes", "1k", "--rate", "1000", "--seconds", "0.2").load


def test_a_load_leaves_out_what_a_stall_explains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "witness"
    monkeypatch.setenv(stalls.VARIABLE, str(path))
    told = load_beside(path, 2000 * HOUR / MS)
    assert told["late_ms"] >= HOUR / MS
    assert told["latency_undisturbed_share"] < 1
    told = load_beside(path, 0)
    assert told["late_ms"] >= HOUR / MS
    assert told["latency_undisturbed_share"] == 1
    assert told["latency_undisturbed_us"] == told["latency_us"]


def test_a_load_whose_witness_left_no_file_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stalls.VARIABLE, str(tmp_path / "missing"))
    with BareServer(find_generator()) as bare:
        done = subprocess.run(bare.words("produce", "--seconds", "0.1"), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert str(tmp_path / "missing") in done.stderr


def test_a_file_of_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "witness"
    path.write_text("late 0 1 2 3\n")
    monkeypatch.setenv(stalls.VARIABLE, str(path))
    done = subprocess.run([find_generator(), "stalls"], input="", capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "does not begin as a witness does" in done.stderr


def may_go_first() -> bool:
    """Whether the system lets a thread of ours go before all others."""
    script = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))"
    return subprocess.run(["python3", "-c", script], capture_output=True, check=False).returncode == 0


def test_the_witness_watches_where_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stalls.VARIABLE, "another")
    with stalls.watched(find_generator()):
        path = os.environ[stalls.VARIABLE]
        assert (path != "another") == may_go_first()
        if path != "another":
            said, count, *_ = Path(path).read_text().split()
            assert said == "watches"
            assert 0 < int(count) <= (os.cpu_count() or 1)
    assert os.environ[stalls.VARIABLE] == "another"
