"""What a test run leaves when it is killed: nothing that runs, is mounted or takes memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import keeper
from tests.harness.crash.engines import DIRECT, EngineTurns

TIMEOUT_S = 60

STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""
RUN = """
import sys, time
from pathlib import Path
from tests.harness import keeper
from tests.harness.process import ChildProcess
place = Path(sys.argv[1])
plain = ChildProcess(["sh", "-c", "echo ready; exec sleep 600"], place / "plain")
family = ChildProcess(["sh", "-c", "sleep 600 & echo ready; wait"], place / "family")
for child in (plain, family):
    child.wait_for_line(lambda line: line == "ready" or None, 30)
keeper.keep("rmdir", place / "first")
keeper.done(keeper.keep("rm", "-r", place / "stays"))
keeper.keep("rmdir", place / "first" / "second")  # made last, so undone first
print("ready", flush=True)
time.sleep(600)
"""
BROKER = """
import sys, time
from pathlib import Path
from tests.harness.broker import BrokerProcess
overrides = dict(word.split("=", 1) for word in sys.argv[2:])
broker = BrokerProcess(Path(sys.argv[1]), overrides=overrides)
print("ready", flush=True)
time.sleep(600)
"""


def killed(text: str, *arguments: object) -> None:
    """Run this program until it is ready, and kill it."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
        finally:
            process.send_signal(signal.SIGKILL)


def using(place: Path) -> list[str]:
    """The processes that have files below `place` open."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if entry.readlink().is_relative_to(place):
                found.append(entry.parts[2])
        except OSError:
            continue  # it has ended
    return found


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_children_end_and_what_was_made_is_undone(tmp_path: Path) -> None:
    (tmp_path / "first" / "second").mkdir(parents=True)
    (tmp_path / "stays").mkdir()
    killed(RUN, tmp_path)
    wait_for(lambda: not using(tmp_path), "children are left")
    wait_for(lambda: not (tmp_path / "first").exists(), "what was made is left")
    assert (tmp_path / "stays").exists(), "it was undone by the run itself"


def test_a_broker_ends_and_its_tail_rings_go(tmp_path: Path) -> None:
    turns = EngineTurns([DIRECT])
    try:
        settings = [f"{key}={value}" for key, value in turns.overrides(0).items()]
        killed(BROKER, tmp_path / "data", *settings)
        wait_for(lambda: not using(tmp_path), "the broker is left")
        wait_for(lambda: not list(turns.directory.iterdir()), "rings are left")
    finally:
        turns.close()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_child_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool) -> None:
    monkeypatch.setattr(keeper, "_TERM_SECONDS", 0.2)
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        if stopped:
            child.send_signal(signal.SIGSTOP)
        keeper._end({os.pidfd_open(child.pid): child.pid})
        assert child.wait(TIMEOUT_S) == -signal.SIGKILL
