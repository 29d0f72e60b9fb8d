"""`pybroker perf flame`: what perf and py-spy write is brought together, and drawn."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main
from pybroker.cli.perf.flame_graph import svg
from pybroker.cli.perf.flame_samples import SamplingFailed, Thread, merge, parse_perf, parse_spy

PERF = """\
pb-reactor-0 29202
\tffffffff81b470f0 io_issue_sqe ([kernel.kallsyms])
\t           5a0a5 __io_uring_submit (/a dir (old)/_pybroker.abi3.so)
\t          1098eb clone3 (/usr/lib/libc.so.6)

name with spaces 7
\t          1098ec [unknown] (/usr/lib/libc.so.6)

python 29133
\t           5a0a5 _PyEval_EvalFrameDefault (/usr/bin/python3.11)

python 29133
\t           5a0a6 _PyEval_EvalFrameDefault (/usr/bin/python3.11)

python 29133
\t           5a0a7 _PyObject_Call (/usr/bin/python3.11)
"""
SPY = """\
thread (29133): MainThread;<module> (pybroker/__main__.py:6);run (asyncio/runners.py:190) 30
thread (29133): MainThread;<module> (pybroker/__main__.py:6);select (select (x).py:4) 70
thread (0x77): log_0;wait (threading.py:1) 100
"""
FAKE_PERF = """#!/bin/sh
if [ "$1" = script ]; then cat "$0.script"; exit 0; fi
"""
FAKE_SPY = """#!/bin/sh
while [ "$1" != --output ]; do shift; done
cat "$0.raw" > "$2"
"""


def test_perf_gives_threads_with_stacks_from_the_root() -> None:
    threads = parse_perf(PERF.splitlines())
    assert threads[29202] == Thread(
        "pb-reactor-0",
        Counter({("clone3 [libc.so.6]", "__io_uring_submit [_pybroker.abi3.so]", "io_issue_sqe [kernel]"): 1}),
    )
    assert threads[7] == Thread("name with spaces", Counter({("[libc.so.6]",): 1}))
    assert sum(threads[29133].stacks.values()) == 3


def test_py_spy_gives_threads_by_the_same_ids() -> None:
    threads = parse_spy(SPY.splitlines())
    assert threads.keys() == {29133, 0x77}
    assert threads[29133].name == "MainThread"
    assert threads[29133].stacks["<module> (pybroker/__main__.py:6)", "run (asyncio/runners.py:190)"] == 30


def test_an_unknown_line_of_py_spy_is_not_taken_for_a_frame() -> None:
    with pytest.raises(SamplingFailed, match="not understood"):
        parse_spy(["MainThread;run 4"])


def test_a_python_thread_has_perfs_weight_and_py_spys_stacks() -> None:
    merged = merge(parse_perf(PERF.splitlines()), parse_spy(SPY.splitlines()))
    python = {frames[-1]: count for frames, count in merged.items() if frames[0] == "MainThread"}
    assert python == {"run (asyncio/runners.py:190)": 1, "select (select (x).py:4)": 2}
    # log_0 had no CPU time: py-spy saw it waiting.
    assert {frames[0] for frames in merged} == {"MainThread", "pb-reactor-0", "name with spaces"}
    assert sum(merged.values()) == 5


def test_shares_add_up_to_what_perf_counted() -> None:
    c = {1: Thread("python", Counter({("x",): 10}))}
    python = {1: Thread("t", Counter({("a",): 1, ("b",): 1, ("c",): 1}))}
    assert merge(c, python) == {("t", "a"): 4, ("t", "b"): 3, ("t", "c"): 3}


def test_waiting_has_the_weight_that_perf_gives_it() -> None:
    """py-spy sees an event loop that waits nearly always; perf knows that waiting costs little."""
    c = {1: Thread("python", Counter({("eval", "do_epoll_wait [kernel]"): 2, ("eval", "call"): 8}))}
    select, handle = ("run", "EpollSelector.select (selectors.py:452)"), ("run", "handle (metadata.py:27)")
    python = {1: Thread("loop", Counter({select: 90, handle: 10}))}
    assert merge(c, python) == {("loop", *select): 2, ("loop", *handle): 8}
    never_waits = {1: Thread("loop", Counter({handle: 10}))}
    assert merge(c, never_waits) == {("loop", *handle): 10}


def frames(picture: str) -> dict[str, dict[str, str]]:
    root = ElementTree.fromstring(picture)
    groups = root.iter("{http://www.w3.org/2000/svg}g")
    return {group.attrib["data-name"]: dict(group.attrib) for group in groups}


def test_widths_are_shares_and_callees_lie_inside_their_callers() -> None:
    drawn = frames(svg({("t", "a", "b<c>"): 3, ("t", "a"): 1, ("u",): 4}, "some & title"))
    box = {name: (float(frame["data-x"]), float(frame["data-w"])) for name, frame in drawn.items()}
    assert box["all"] == (0, 1200)
    assert box["t"] == (0, 600)
    assert box["a"] == (0, 600)
    assert box["b<c>"] == (0, 450)
    assert box["u"] == (600, 600)
    assert int(drawn["b<c>"]["data-level"]) == 3


def test_a_stack_deeper_than_pythons_limit_can_be_drawn() -> None:
    assert len(frames(svg({tuple(f"f{level}" for level in range(3000)): 1}, "deep"))) == 3001


def test_no_samples_make_an_empty_picture() -> None:
    assert frames(svg({}, "idle")).keys() == {"all"}


def flame(monkeypatch: pytest.MonkeyPatch, path: Path, *arguments: str) -> Result:
    monkeypatch.setenv("PATH", f"{path}:/bin:/usr/bin" if list(path.iterdir()) else str(path))
    monkeypatch.setattr("sys.executable", str(path / "python"))
    return CliRunner().invoke(main, ["perf", "flame", *arguments])


def program(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(text)
    (directory / name).chmod(0o755)


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = flame(monkeypatch, tmp_path, "--pid", "1")
    assert result.exit_code == 3
    assert "linux-perf" in result.output


def test_what_a_program_is_not_allowed_to_do_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, "perf", "#!/bin/sh\necho 'No permission to enable cpu-clock event.'\nexit 255\n")
    program(tmp_path, "py-spy", FAKE_SPY)
    (tmp_path / "py-spy.raw").write_text(SPY)
    result = flame(monkeypatch, tmp_path, "--pid", str(os.getpid()), "--seconds", "1")
    assert result.exit_code == 3
    assert "No permission to enable cpu-clock event." in result.output
    assert "kernel.perf_event_paranoid" in result.output


def test_a_process_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, "perf", FAKE_PERF)
    program(tmp_path, "py-spy", FAKE_SPY)
    result = flame(monkeypatch, tmp_path, "--pid", str(2**22 + 1))
    assert (result.exit_code, "no process" in result.output) == (3, True)


def test_both_are_drawn_in_one_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, "perf", FAKE_PERF)
    (tmp_path / "perf.script").write_text(PERF)
    program(tmp_path, "py-spy", FAKE_SPY)
    (tmp_path / "py-spy.raw").write_text(SPY)
    output = tmp_path / "graphs" / "flame.svg"
    result = flame(monkeypatch, tmp_path, "--pid", str(os.getpid()), "--seconds", "1", "--output", str(output))
    assert result.exit_code == 0, result.output
    assert re.search(r"0\.05 s of CPU time in 1 s", result.output)
    assert {"MainThread", "pb-reactor-0", "io_issue_sqe [kernel]", "run (asyncio/runners.py:190)"} <= frames(
        output.read_text()
    ).keys()
