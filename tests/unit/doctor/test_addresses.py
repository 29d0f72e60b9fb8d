"""`pybroker doctor` on listeners and what clients are told of them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from patients import Examine, faults

#: Kept for documentation (RFC 5737): no machine has it.
NOWHERE = "192.0.2.1"


def listener(host: str, advertised: str, tmp_path: Path) -> list[str]:
    return [
        f"log.dirs={tmp_path / 'data'}",
        f"listeners=PLAINTEXT://{host}:12000",
        f"advertised.listeners=PLAINTEXT://{advertised}:12000",
    ]


def test_a_port_in_use_and_by_whom(examined: Examine, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = examined(f"log.dirs={tmp_path / 'data'}", f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert faults(found) == {"port-in-use"}
    assert f"process {os.getpid()} " in found["port-in-use"].what


def test_a_taken_port_of_metrics(examined: Examine, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        found = examined(f"log.dirs={tmp_path / 'data'}", f"pybroker.metrics.listener={address}")
    assert faults(found) == {"metrics-port-in-use"}
    assert f"process {os.getpid()} " in found["metrics-port-in-use"].what


def test_an_address_that_is_not_here(examined: Examine, tmp_path: Path) -> None:
    found = examined(*listener(NOWHERE, NOWHERE, tmp_path))
    assert faults(found) == {"listener-address"}
    assert "no address of this machine" in found["listener-address"].what


def test_clients_are_told_their_own_machine(examined: Examine, tmp_path: Path) -> None:
    assert "advertised-loopback" in faults(examined(*listener("0.0.0.0", "127.0.0.1", tmp_path)))


def test_clients_are_told_where_nobody_listens(examined: Examine, tmp_path: Path) -> None:
    assert "advertised-not-listened" in faults(examined(*listener("127.0.0.1", NOWHERE, tmp_path)))


def test_clients_are_told_another_host(examined: Examine, tmp_path: Path) -> None:
    found = examined(*listener("0.0.0.0", NOWHERE, tmp_path))
    assert NOWHERE in found["advertised-elsewhere"].what


def test_clients_are_told_a_name_that_is_none(examined: Examine, tmp_path: Path) -> None:
    found = examined(*listener("127.0.0.1", "broker..example", tmp_path))
    assert found["advertised-unresolved"].severity.is_fault


def test_nobody_is_there(examined: Examine, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        found = examined(f"log.dirs={tmp_path / 'data'}", bootstrap=closed.getsockname())
    assert faults(found) == {"broker-unreachable"}
