"""Commands that are started with closed standard streams, as real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from pybroker.observability.journal import SOCKET_PATH
from tests.harness.broker import BrokerProcess
from tests.harness.process import free_port

TIMEOUT_S = 60
COMBINATIONS = [set(each) for count in (1, 2, 3) for each in combinations(range(3), count)]

#: Logs one line, as `serve` does, to the journal at a path of the test's.
LOGGING = """
import logging, sys
import pybroker.cli.main
from pybroker.observability import journal, logging as ours
journal.JournalHandler.__init__.__defaults__ = (sys.argv[1],)
ours.configure_logging()
logging.getLogger("pybroker.test").warning("is heard")
"""
#: What each stream of a command is, and whether its children get it.
STREAMS = """
import json, os, sys
import pybroker.cli.main
found = {}
for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
    place = os.readlink(f"/proc/self/fd/{number}")
    found[number] = [stream is not None and stream.fileno(), place, os.get_inheritable(number)]
opened = os.open("/proc/self/stat", os.O_RDONLY)
with open(sys.argv[1], "w") as file:
    json.dump({"streams": found, "first_free": opened}, file)
"""


def with_closed(closed: set[int], command: Sequence[str]) -> list[str]:
    """That command, started by a shell that closes some of its standard streams."""
    redirections = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in sorted(closed))
    return ["sh", "-c", f'exec "$@" {redirections}', "sh", *command]


def name(closed: set[int]) -> str:
    return "-".join(map(str, sorted(closed)))


def served(port: int, process: subprocess.Popen[bytes]) -> None:
    """Returns once an ApiVersions request is answered there."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        assert process.poll() is None, f"it ended with status {process.returncode}"
        assert time.monotonic() < deadline, "nobody listens"
        try:
            with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
                connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
                assert connection.recv(8)[4:] == struct.pack(">i", 7)
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return


@pytest.mark.parametrize("closed", COMBINATIONS, ids=name)
def test_a_broker_serves_with_closed_streams(closed: set[int], tmp_path: Path) -> None:
    port = free_port()
    overrides = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "pybroker.metrics.listener": "127.0.0.1:0",
    }
    command = [sys.executable, "-m", "pybroker", "serve"]
    command += [part for key, value in overrides.items() for part in ("--override", f"{key}={value}")]
    with (
        open(tmp_path / "out", "wb") as out,
        open(tmp_path / "errors", "wb") as errors,
        subprocess.Popen(with_closed(closed, command), stdin=subprocess.DEVNULL, stdout=out, stderr=errors) as process,
    ):
        try:
            served(port, process)
            descriptors = Path(f"/proc/{process.pid}/fd")
            assert {os.readlink(descriptors / str(number)) for number in closed} == {os.devnull}
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0
        finally:
            if process.poll() is None:
                process.kill()
    assert (b"ready" in (tmp_path / "out").read_bytes()) == (1 not in closed)
    assert (b"closed in" in (tmp_path / "errors").read_bytes()) == (2 not in closed)


@pytest.mark.parametrize("closed", COMBINATIONS, ids=name)
def test_no_file_becomes_a_standard_stream(closed: set[int], tmp_path: Path) -> None:
    found = tmp_path / "found"
    command = with_closed(closed, [sys.executable, "-c", STREAMS, str(found)])
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=True)
    told = json.loads(found.read_text())
    for number in closed:
        assert told["streams"][str(number)] == [number, os.devnull, True]
    assert told["first_free"] > 2


def test_commands_do_their_work_with_closed_streams(tmp_path: Path) -> None:
    """One that asks what standard output is, one that reads standard input, and one that only prints."""
    with BrokerProcess(tmp_path / "data", overrides={"num.partitions": "1"}) as broker:
        at = ["--bootstrap-server", broker.bootstrap]
        commands = (
            ["topics", "list", *at],
            ["groups", "list", *at],
            ["produce", "--topic", "t", *at],
            ["config", "docs"],
        )
        for arguments, closed in ((each, closed) for each in commands for closed in ({0}, {1}, {0, 1, 2})):
            command = with_closed(closed, [sys.executable, "-m", "pybroker", *arguments])
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False
            )
            assert (done.returncode, b"Traceback" in done.stderr) == (0, False), (arguments, closed)


def test_the_log_goes_to_the_journal_when_standard_error_is_closed(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(path)
        journal.settimeout(TIMEOUT_S)
        subprocess.run(with_closed({2}, [sys.executable, "-c", LOGGING, path]), timeout=TIMEOUT_S, check=True)
        assert b"MESSAGE=is heard\n" in journal.recv(65536)


def test_a_start_that_fails_says_so_to_the_journal(tmp_path: Path) -> None:
    """A listener that cannot be had, without a standard error to say so."""
    script = LOGGING.rpartition("ours.configure_logging")[0] + "pybroker.cli.main.main(sys.argv[2:])\n"
    path = str(tmp_path / "journal")
    arguments = ["serve", "--override", f"log.dirs={tmp_path / 'data'}", "--override", "listeners=nonsense"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(path)
        journal.settimeout(TIMEOUT_S)
        command = with_closed({0, 1, 2}, [sys.executable, "-c", script, path, *arguments])
        done = subprocess.run(command, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 2
        assert b"listeners" in journal.recv(65536)
    assert SOCKET_PATH.startswith("/run/")
