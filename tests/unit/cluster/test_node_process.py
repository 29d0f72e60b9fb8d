"""Processes that outlive who started them: known again by id and start, and never taken for somebody else's."""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cluster.layout import ProcessName
from pybroker.cluster.node_process import NodeProcess
from tests.harness.waiting import until

WAIT_SECONDS = 60.0
#: Ends one thread; by machine.
SYS_EXIT = {"x86_64": 60, "aarch64": 93}
_TALK = (
    "import os, signal, sys; print('out', os.environ['MINE'], flush=True); print('err', file=sys.stderr, flush=True);"
)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[NodeProcess]:
    started = NodeProcess.start(
        [sys.executable, "-c", _TALK + "signal.pause()"], tmp_path / "output", {"MINE": "value"}
    )
    yield started
    started.signal(signal.SIGKILL)
    assert started.wait(WAIT_SECONDS)


def wait_for_state(process: NodeProcess, wanted: str) -> None:
    until(lambda: process.state() == wanted, f"it is {wanted}")


def test_output_and_environment(process: NodeProcess, tmp_path: Path) -> None:
    until(lambda: (tmp_path / "output").read_text() == "out value\nerr\n", "it has written")
    assert os.getsid(process.name.pid) == process.name.pid


def test_pause_resume_and_end(process: NodeProcess) -> None:
    assert process.state() == "running"
    assert process.signal(signal.SIGSTOP)
    wait_for_state(process, "paused")
    assert process.signal(signal.SIGCONT)
    wait_for_state(process, "running")
    assert process.signal(signal.SIGKILL)
    assert process.wait(WAIT_SECONDS)
    assert process.exit_status == -signal.SIGKILL
    assert not process.signal(signal.SIGKILL)


def test_another_object_of_the_same_name_sees_the_same_process(process: NodeProcess) -> None:
    again = NodeProcess(process.name)
    assert again.state() == "running"
    assert again.signal(signal.SIGKILL)
    assert again.wait(WAIT_SECONDS)
    assert process.state() == "ended"


def test_who_got_the_id_later_is_left_alone(process: NodeProcess) -> None:
    stranger = NodeProcess(ProcessName(process.name.pid, process.name.start_ticks - 1))
    assert stranger.state() == "ended"
    assert not stranger.signal(signal.SIGKILL)
    assert process.state() == "running"


def test_a_process_lives_as_long_as_one_of_its_threads(tmp_path: Path) -> None:
    """As a JVM does, whose first thread ends before the others."""
    script = (
        "import ctypes, threading, time, os\n"
        "def rest():\n"
        "    while open(f'/proc/{os.getpid()}/stat').read().rpartition(')')[2].split()[0] != 'Z': time.sleep(0.005)\n"
        "    print('alone', flush=True)\n"
        "    time.sleep(600)\n"
        "threading.Thread(target=rest, daemon=True).start()\n"
        f"ctypes.CDLL(None).syscall({SYS_EXIT[platform.machine()]}, 0)\n"
    )
    process = NodeProcess.start([sys.executable, "-c", script], tmp_path / "output", {})
    until(lambda: (tmp_path / "output").read_text() == "alone\n", "it has written")
    assert process.state() == "running"
    assert process.signal(signal.SIGKILL)
    assert process.wait(WAIT_SECONDS)
    assert process.exit_status == -signal.SIGKILL
