"""Where a broker listens that nobody told where: on loopback alone. In a network of its own, with port 9092 free."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a network namespace needs root and unshare"
)
EVERY_ADDRESS = {"00000000", "0" * 32}
LOOPBACK = "0100007F"
#: Brings loopback up, and serves.
SERVE = 'ip link set lo up && exec "$@"'


@contextmanager
def serving(log_dir: Path, *settings: str) -> Iterator[tuple[str, set[str]]]:
    """The ready line, and the addresses of sockets that listen on port 9092, in hexadecimal as /proc has them."""
    command = [sys.executable, "-m", "pybroker", "serve", "--override", f"log.dirs={log_dir}"]
    command += [word for each in ("pybroker.metrics.listener=127.0.0.1:0", *settings) for word in ("--override", each)]
    namespace = ["unshare", "--net", "sh", "-c", SERVE, "sh"]
    with subprocess.Popen([*namespace, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            yield ready, listening(process.pid)
        finally:
            process.terminate()
    assert process.returncode == 0


def listening(pid: int) -> set[str]:
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == 9092}


@needs_namespaces
def test_without_a_setting_it_is_loopback_alone_and_the_ready_line_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as (ready, addresses):
        assert addresses == {LOOPBACK}
        assert "listeners=PLAINTEXT://127.0.0.1:9092 " in ready
        assert ready.endswith("(this machine only: set listeners to serve others)\n")


@needs_namespaces
def test_an_advertised_address_opens_nothing(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "advertised.listeners=PLAINTEXT://broker.example:9092") as (ready, addresses):
        assert addresses == {LOOPBACK}
        assert "set listeners" in ready


@needs_namespaces
def test_an_empty_host_that_was_written_is_every_address(tmp_path: Path) -> None:
    told = f"advertised.listeners=PLAINTEXT://{socket.gethostname()}:9092"
    with serving(tmp_path / "data", "listeners=PLAINTEXT://:9092", told) as (ready, addresses):
        assert addresses <= EVERY_ADDRESS and addresses
        assert "set listeners" not in ready
