"""`pybroker serve` as a process: its ready line, its exit status, its words when it cannot start."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pybroker.storage.files import clean_shutdown

# A broker that fails once it has started, and is asked to stop while it closes.
FAILING = """
import asyncio, os, signal, sys
from pybroker.cli.commands.serve import command
from pybroker.server.daemon import Daemon

class Failing(Daemon):
    async def start(self):
        await super().start()
        self._fail("a test wants it so")

    async def stop(self):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)
        await super().stop()

import pybroker.server.daemon
pybroker.server.daemon.Daemon = Failing
command(sys.argv[1:])
"""
# One that fails while it waits for others, and would wait for ever.
FAILING_AT_THE_START = """
import asyncio, sys
from pybroker.cli.commands.serve import command
from pybroker.server.daemon import Daemon

class Failing(Daemon):
    async def _register(self, *_):
        self._fail("a test wants it so")
        await asyncio.Event().wait()

import pybroker.server.daemon
pybroker.server.daemon.Daemon = Failing
command(sys.argv[1:])
"""
# One that could not bring everything to the disk.
AT_RISK = """
import sys
from pybroker.cli.commands.serve import command
from pybroker.server.daemon import Daemon

class Losing(Daemon):
    async def stop(self):
        await super().stop()
        self.observed.logs.at_risk.extend(("t", number) for number in range(60))

import pybroker.server.daemon
pybroker.server.daemon.Daemon = Losing
command(sys.argv[1:])
"""
COMMAND = [sys.executable, "-m", "pybroker", "serve"]
TIMEOUT_S = 120


def overrides(log_dir: Path, **more: str) -> list[str]:
    settings = {"log.dirs": str(log_dir), "listeners": "PLAINTEXT://127.0.0.1:0", **more}
    return [part for name, value in settings.items() for part in ("--override", f"{name}={value}")]


def fails(*arguments: str) -> tuple[int, str]:
    """Exit status and standard error of a command that must not serve."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker and its ready line."""
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_a_signal_and_closes_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("no.such.setting=1\nnum.partitions=2\n")
    with serving(str(properties), *overrides(tmp_path / "data")) as (process, ready):
        assert ready.startswith("pybroker ready listeners=PLAINTEXT://127.0.0.1:")
        os.kill(process.pid, number)
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert output == "", "one line only"
    assert f"{properties}:1: no.such.setting is not a known setting" in errors
    assert clean_shutdown.read(tmp_path / "data") is not None


def test_a_bad_value_names_file_key_and_what_is_accepted(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("\nlog.cleanup.policy=sometimes\n")
    status, errors = fails(str(properties), *overrides(tmp_path / "data"))
    assert status == 2
    assert f"{properties}:2" in errors
    assert all(word in errors for word in ("log.cleanup.policy", "sometimes", "delete", "compact"))
    assert not (tmp_path / "data").exists()


def test_all_bad_settings_are_named_at_once(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.cleanup.policy=sometimes\nnum.partitions=none\nlog.segment.bytes=many\n")
    status, errors = fails(str(properties), *overrides(tmp_path / "data"))
    assert status == 2
    lines = errors.strip().splitlines()
    assert [line.startswith(f"pybroker: {properties}:{number}: ") for number, line in enumerate(lines, 1)] == [True] * 3
    assert len(lines) == 3


def test_a_bad_profile_names_those_there_are(tmp_path: Path) -> None:
    status, errors = fails(*overrides(tmp_path / "data", **{"pybroker.profile": "toaster"}))
    assert (status, "toaster" in errors, "generic" in errors) == (2, True, True)


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, errors = fails(*overrides(tmp_path / "data", listeners=f"PLAINTEXT://127.0.0.1:{port}"))
    assert status == 1
    assert str(port) in errors
    assert len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_a_log_dir_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, errors = fails(*overrides(tmp_path / "file" / "data"))
    assert status == 1
    assert str(tmp_path / "file" / "data") in errors
    assert len(errors.strip().splitlines()) == 1


def test_a_log_dir_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with serving(*overrides(tmp_path / "data")) as (process, ready):
        assert ready
        status, errors = fails(*overrides(tmp_path / "data"))
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert status == 1
    assert "in use by another broker" in errors
    assert len(errors.strip().splitlines()) == 1


def test_a_signal_during_the_start_is_obeyed(tmp_path: Path) -> None:
    """Even one that comes right away ends with a status, never with a traceback."""
    (tmp_path / "data").mkdir()
    with subprocess.Popen([*COMMAND, *overrides(tmp_path / "data")], stdout=-1, stderr=-1, text=True) as process:
        # The lock is taken on the loop, so the handlers are there.
        while not (tmp_path / "data" / ".lock").exists():
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_a_signal_after_a_failure_makes_no_clean_stop_of_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAILING, *overrides(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert "the broker cannot go on: a test wants it so" in done.stderr
    assert done.returncode == 1


def test_a_failure_during_the_start_ends_the_broker(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAILING_AT_THE_START, *overrides(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "the broker cannot go on: a test wants it so" in done.stderr
    assert "Traceback" not in done.stderr
    assert clean_shutdown.read(tmp_path) is not None, "and what was opened is closed in order"


def test_a_reader_that_has_gone_does_not_end_the_broker(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, *overrides(tmp_path)]
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=buffered) as process:
        os.close(writing)
        assert process.stderr is not None
        seen = iter(process.stderr.readline, "")
        assert any("the ready line cannot be written" in line for line in seen)
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert clean_shutdown.read(tmp_path) is not None


def test_a_metadata_log_that_cannot_grow_is_told_in_a_line(tmp_path: Path) -> None:
    with serving(*overrides(tmp_path)) as (process, _):
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").stat().st_size > 512
    # No file can grow beyond 512 bytes, the shell's unit.
    command = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *COMMAND, *overrides(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert "the metadata log cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stop_that_may_have_cost_records_says_which_and_ends_with_status_1(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AT_RISK, *overrides(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("pybroker ready")
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    last = errors.splitlines()[-2:]
    assert "may be lost in 50 of 60 partitions" in last[0] and "may be lost in 10 of 60 partitions" in last[1]
    named = {f"t-{number}" for number in range(60) if re.search(rf"\bt-{number}\b", " ".join(last))}
    assert len(named) == 60
