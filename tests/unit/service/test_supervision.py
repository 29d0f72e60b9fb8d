"""A broker process and its service manager, which this test is: READY, status, reload, signs of life, and the stop.

What ends a frozen broker is the manager's patience, so the tests look for what it looks for: a gap between two signs of
life that is longer than the period it announced.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.observability import process
from pybroker.profiles import load_profile
from pybroker.server.daemon import Daemon
from pybroker.server.observe.observed import RECOVERING
from pybroker.service import supervision
from pybroker.service.notify import ServiceManager
from pybroker.storage.files import clean_shutdown
from tests.harness.thread_stop import stopped_thread, thread_id

PERIOD_S = 0.8
TIMEOUT_S = 60


class Manager:
    """The receiving end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.status = ""

    def next(self, timeout_s: float = TIMEOUT_S) -> dict[str, str]:
        """The next message. TimeoutError."""
        self.socket.settimeout(timeout_s)
        lines = self.socket.recv(65536).decode().split("\n")
        message = {name: value for name, _, value in (line.partition("=") for line in lines)}
        self.status = message.get("STATUS", self.status)
        return message

    def until(self, name: str, value: str) -> list[dict[str, str]]:
        """All messages up to the first that has that assignment, or one that begins so. TimeoutError."""
        found: list[dict[str, str]] = []
        until_s = time.monotonic() + TIMEOUT_S
        while not found or not found[-1].get(name, "").startswith(value):
            found.append(self.next(max(0.001, until_s - time.monotonic())))
        return found

    def until_status(self, text: str) -> None:
        """Return when the status has that in it. TimeoutError."""
        until_s = time.monotonic() + TIMEOUT_S
        while text not in self.status:
            self.next(max(0.001, until_s - time.monotonic()))

    def until_it_loses_patience(self) -> None:
        """Return when no sign of life has come for the whole period. TimeoutError."""
        until_s = time.monotonic() + TIMEOUT_S
        sign_s = time.monotonic()
        while (left_s := sign_s + PERIOD_S - time.monotonic()) > 0:
            try:
                message = self.next(left_s)
            except TimeoutError:
                return
            if "WATCHDOG" in message:
                sign_s = time.monotonic()
            if sign_s > until_s:
                raise TimeoutError(f"signs of life still come; status: {self.status}")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    found = Manager(tmp_path / "notify")
    yield found
    found.socket.close()


@contextmanager
def serving(manager: Manager, log_dir: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    settings = {
        "log.dirs": str(log_dir),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "pybroker.metrics.listener": "127.0.0.1:0",
        "pybroker.reactors": "2",
    }
    command = [sys.executable, "-m", "tests.harness.serve_holding_gil", "serve"]
    command += [part for name, value in settings.items() for part in ("--override", f"{name}={value}")]
    environment = {
        **os.environ,
        "NOTIFY_SOCKET": str(manager.path),
        "WATCHDOG_USEC": str(int(PERIOD_S * 1_000_000)),
        **variables,
    }
    with open(log_dir.parent / "output", "wb") as output:
        broker = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield broker
    finally:
        if broker.poll() is None:
            broker.kill()
        broker.wait()


def test_ready_when_clients_are_served_reload_and_a_clean_stop(manager: Manager, tmp_path: Path) -> None:
    with serving(manager, tmp_path / "data") as broker:
        *before, ready = manager.until("READY", "1")
        assert all(set(each) <= {"STATUS", "EXTEND_TIMEOUT_USEC"} for each in before), before
        text, _, address = ready["STATUS"].partition("PLAINTEXT://")
        assert text == "serving 0 partitions on "
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as client:
            # ApiVersions, version 0.
            client.sendall(bytes.fromhex("0000000a 0012 0000 0000002a 0000"))
            assert client.makefile("rb").read(8)[4:] == bytes.fromhex("0000002a")
        broker.send_signal(signal.SIGHUP)
        reloading = manager.until("RELOADING", "1")[-1]
        assert int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        manager.until("READY", "1")
        broker.send_signal(signal.SIGTERM)
        last = manager.until("STOPPING", "1")[-1]
        assert last["STATUS"] == "closing"
        assert broker.wait(TIMEOUT_S) == 0
    assert clean_shutdown.read(tmp_path / "data") is not None
    assert "SIGHUP: pybroker.log.level=" in (tmp_path / "output").read_text()


def test_a_start_that_fails_says_why(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with serving(manager, tmp_path / "data") as broker:
        messages = manager.until("STOPPING", "1")
        assert not any("READY" in each for each in messages)
        assert str(tmp_path / "data") in messages[-1]["STATUS"]
        assert broker.wait(TIMEOUT_S) == 1


def test_a_reactor_that_stands_still_ends_the_signs_of_life(manager: Manager, tmp_path: Path) -> None:
    with serving(manager, tmp_path / "data") as broker:
        manager.until("WATCHDOG", "1")
        with stopped_thread(thread_id(broker.pid, "pb-reactor-1")):
            manager.until_it_loses_patience()
            manager.until_status("reactor 1 has not turned")
        manager.until("WATCHDOG", "1")
        manager.until_status("serving")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(TIMEOUT_S) == 0


def test_a_control_loop_that_stands_still_ends_the_signs_of_life(manager: Manager, tmp_path: Path) -> None:
    with serving(manager, tmp_path / "data", PYBROKER_BLOCK_UNTIL=str(tmp_path / "never")) as broker:
        manager.until("WATCHDOG", "1")
        broker.send_signal(signal.SIGUSR2)
        until_s = time.monotonic() + TIMEOUT_S
        while "the control loop stands still" not in (tmp_path / "output").read_text():
            assert time.monotonic() < until_s
            time.sleep(0.01)
        manager.until_it_loses_patience()
        manager.until_status("standing still: the control loop has not turned")
        # What the manager does then. The log says where the loop stood.
        resource.prlimit(broker.pid, resource.RLIMIT_CORE, (0, 0))
        broker.send_signal(signal.SIGABRT)
        assert broker.wait(TIMEOUT_S) == -signal.SIGABRT
    output = (tmp_path / "output").read_text()
    assert "no sign of life for the service manager: the control loop has not turned" in output
    assert "in _block" in output


def test_a_broker_that_does_nothing_at_all_gives_no_sign(manager: Manager, tmp_path: Path) -> None:
    with serving(manager, tmp_path / "data") as broker:
        manager.until("WATCHDOG", "1")
        broker.send_signal(signal.SIGSTOP)
        manager.until_it_loses_patience()
        broker.send_signal(signal.SIGCONT)
        manager.until("WATCHDOG", "1")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(TIMEOUT_S) == 0


def test_recovery_asks_for_time_while_it_gets_on(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(process, "read_bytes", lambda: read_bytes[0])
    read_bytes = [0]

    async def run() -> None:
        config = BrokerConfig.load(None, [f"log.dirs={tmp_path / 'data'}"])
        daemon = Daemon(config, load_profile(config))
        logs = SimpleNamespace(logs={}, scanned_bytes=0)
        daemon.observed.logs, daemon.observed.phase, daemon.observed.assigned_count = logs, RECOVERING, 3
        async with supervision.Supervision(ServiceManager({"NOTIFY_SOCKET": str(manager.path)}), daemon):

            async def until(status: str) -> bool:
                """Whether time was asked for before the status came to be this."""
                messages = await asyncio.to_thread(manager.until, "STATUS", f"recovering: {status}")
                return any("EXTEND_TIMEOUT_USEC" in each for each in messages)

            await until("0 of 3 logs are open, 0 MiB checked")
            logs.logs, logs.scanned_bytes = {("t", 0): None}, 5 << 20
            assert await until("1 of 3 logs are open, 5 MiB checked")
            daemon.observed.assigned_count = 4
            assert not await until("1 of 4")
            read_bytes[0], daemon.observed.assigned_count = 1, 5
            assert await until("1 of 5")
        await daemon.stop()

    asyncio.run(run())
    manager.until("STOPPING", "1")
