"""What a service manager is sent, byte by byte."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pybroker.service.notify import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def bound(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, socket.socket]:
    """The address as NOTIFY_SOCKET has it, and the socket behind it."""
    address = f"@pybroker-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    receiving = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiving.bind("\0" + address[1:] if address[0] == "@" else address)
    receiving.settimeout(60)
    request.addfinalizer(receiving.close)
    return address, receiving


def test_messages_of_both_kinds_of_sockets(bound: tuple[str, socket.socket]) -> None:
    address, receiving = bound
    manager = ServiceManager({"NOTIFY_SOCKET": address})
    assert manager.listens
    manager.tell_status("starting")
    manager.tell_status("starting")
    manager.ask_for_time(1.5)
    manager.tell_ready("serving\nFOO=1")
    manager.tell_alive()
    manager.tell_reloading("serving")
    manager.tell_status("serving")
    manager.tell_stopping("closing")
    manager.close()
    manager.tell_alive()
    received = [receiving.recv(4096).decode() for _ in range(6)]
    assert received[:4] == [
        "STATUS=starting",
        "EXTEND_TIMEOUT_USEC=1500000",
        "READY=1\nSTATUS=serving FOO=1",
        "WATCHDOG=1",
    ]
    reloading, microseconds, status = received[4].split("\n")
    assert (reloading, status) == ("RELOADING=1", "STATUS=serving")
    assert microseconds.startswith("MONOTONIC_USEC=")
    assert microseconds.removeprefix("MONOTONIC_USEC=").isdecimal()
    assert received[5] == "STOPPING=1\nSTATUS=closing"
    receiving.setblocking(False)
    with pytest.raises(BlockingIOError):
        receiving.recv(4096)


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_for_whom_signs_of_life_are(
    bound: tuple[str, socket.socket], variables: dict[str, str], seconds: float | None
) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": bound[0], **variables})
    assert manager.watchdog_s == seconds
    manager.close()


@pytest.mark.parametrize("variables", [{}, {"NOTIFY_SOCKET": ""}, {"WATCHDOG_USEC": "1"}])
def test_nobody_is_told(variables: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    manager = ServiceManager(variables)
    manager.tell_ready("serving")
    assert not manager.listens
    assert manager.watchdog_s is None
    assert not caplog.records


@pytest.mark.parametrize("address", ["vsock:2:1234", "notify", "/no/such/socket"])
def test_a_socket_that_is_none_is_named_and_harmless(address: str, caplog: pytest.LogCaptureFixture) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": address})
    manager.tell_ready("serving")
    assert not manager.listens
    assert f"NOTIFY_SOCKET={address}" in caplog.text


def test_a_manager_that_has_gone_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(str(tmp_path / "notify"))
        manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    for _ in range(3):
        manager.tell_alive()
    manager.close()
    assert len(caplog.records) == 1
    assert "cannot be told WATCHDOG" in caplog.text
