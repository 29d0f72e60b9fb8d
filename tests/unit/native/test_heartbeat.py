"""Heartbeats that the data plane gives, over a real socket; when and how long is tested in C (`test_heartbeat.c`)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from pybroker import native
from pybroker.native.broker import BrokerOptions, NativeBroker
from pybroker.native.errors import NativeError
from pybroker.native.heartbeat import NativeHeartbeat

TIMEOUT_S = 60.0
FRAME = bytes(range(40))


@pytest.fixture(params=["epoll", "io_uring"])
def broker(request: pytest.FixtureRequest) -> Iterator[NativeBroker]:
    if request.param == "io_uring" and native.backend_refusal("io_uring") is not None:
        pytest.skip("this kernel gives no ring")
    opened = NativeBroker(BrokerOptions(request.param, 1, 1, 0, 1 << 20, 1 << 20, 100, 60_000, 10, 1 << 20))
    opened.start()
    yield opened
    opened.stop()
    opened.close()


@pytest.fixture
def controller() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(TIMEOUT_S)
        yield listening


def accepted(controller: socket.socket) -> socket.socket:
    peer, _ = controller.accept()
    peer.settimeout(TIMEOUT_S)
    return peer


def read(peer: socket.socket, length: int) -> bytes:
    with peer.makefile("rb", buffering=0) as stream:
        data = b""
        while len(data) < length:
            part = stream.read(length - len(data))
            assert part, "the connection has ended"
            data += part
        return data


def test_what_was_fed_is_said_again_also_on_the_next_connection(
    broker: NativeBroker, controller: socket.socket
) -> None:
    heartbeat = NativeHeartbeat(broker, *controller.getsockname(), 20, 600_000)
    with accepted(controller) as peer:
        heartbeat.feed(FRAME)
        assert read(peer, 3 * len(FRAME)) == FRAME * 3
        peer.sendall(b"\0\0\0\4 ok ")
    with accepted(controller) as peer:
        assert read(peer, len(FRAME)) == FRAME
    deadline = time.monotonic() + TIMEOUT_S
    while heartbeat.sent_count < 4:  # it is counted after it has gone
        assert time.monotonic() < deadline
        time.sleep(0.001)
    heartbeat.close()


def test_what_makes_no_sense_is_refused(broker: NativeBroker, controller: socket.socket) -> None:
    with pytest.raises(NativeError, match="need an address and times"):
        NativeHeartbeat(broker, "127.0.0.1", 0, 20, 100)
    heartbeat = NativeHeartbeat(broker, *controller.getsockname(), 20, 100)
    with pytest.raises(NativeError):
        heartbeat.feed(b"")
    with pytest.raises(NativeError):
        heartbeat.feed(bytes(65_537))
    heartbeat.close()
