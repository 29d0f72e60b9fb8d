"""Clients that make the broker complain as fast as they can: its log stays small, and says what others did."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.process import free_port

CONNECTIONS = 4
SECONDS = 5.0
MOST_LOG_BYTES = 1 << 20
METADATA, FETCH, JOIN_GROUP, NO_SUCH_API = 3, 1, 11, 4242
#: With escapes for terminals and lines of its own, as long as a client id may be.
CLIENT_ID = (b"\x1b[2J\n2023-11-14T22:13:20.250Z [error   ] all is lost [pybroker]\n" * 600)[:32_767]


def request(api_key: int, version: int, body: bytes) -> bytes:
    """A frame with a header of version 1."""
    frame = struct.pack(">hhih", api_key, version, 7, len(CLIENT_ID)) + CLIENT_ID + body
    return struct.pack(">i", len(frame)) + frame


#: An array that says it has 9 elements and has none; an API that nobody serves; a string without its end.
MALFORMED = [
    request(METADATA, 4, struct.pack(">i", 9)),
    request(FETCH, 4, b"\xff" * 11),
    request(NO_SUCH_API, 0, b""),
    request(JOIN_GROUP, 0, struct.pack(">h", 30_000)),
]


def flood(port: int, number: int, until_s: float, sent: list[int]) -> None:
    count = 0
    while time.monotonic() < until_s:
        try:
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                connection.sendall(MALFORMED[(number + count) % len(MALFORMED)])
                connection.settimeout(10)
                assert connection.recv(1) == b"", "a malformed request is not answered"
        except ConnectionError:
            pass  # closed before all of it was sent
        count += 1
    sent[number] = count


def left_out(broker: BrokerProcess) -> float:
    with urllib.request.urlopen(broker.ready.get("metrics"), timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'^pybroker_log_lines_left_out_total\{level="\w+"\} (\S+)$', text, re.MULTILINE)
    assert found, text[:2000]
    return sum(map(float, found))


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_malformed_requests_fill_no_log(tmp_path: Path, log_format: str) -> None:
    overrides = {"pybroker.log.format": log_format, "pybroker.metrics.listener": f"127.0.0.1:{free_port()}"}
    with BrokerProcess(tmp_path / "data", overrides=overrides) as broker:
        sent = [0] * CONNECTIONS
        until_s = time.monotonic() + SECONDS
        threads = [
            threading.Thread(target=flood, args=(broker.port, number, until_s, sent)) for number in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(sent) > 500, "the flood was none"
        assert left_out(broker) > 100
        broker.stop()
    log = broker.output_path.read_bytes()
    print(f"{sum(sent)} requests wrote {len(log)} bytes")
    assert len(log) < MOST_LOG_BYTES, f"{sum(sent)} requests wrote {len(log)} bytes"
    assert b"\x1b" not in log
    lines = log.decode().splitlines()
    assert not [line for line in lines if line.startswith("2023-")], "a client wrote a line"
    assert max(map(len, lines)) < 16_384
    told = "\n".join(lines)
    assert "malformed request" in told
    assert "closing the connection from 127.0.0.1" in told
    assert "more like this in the last" in told
