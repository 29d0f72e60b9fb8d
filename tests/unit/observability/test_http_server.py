"""The small HTTP server: what it answers, and that nobody can take it up for himself."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping

import pytest

from pybroker.observability import http_server
from pybroker.observability.http_server import HttpServer, Response
from tests.harness.waiting import until


async def echo(query: Mapping[str, str]) -> Response:
    return Response(200, "application/json", json.dumps(dict(query)).encode())


async def defect(query: Mapping[str, str]) -> Response:
    raise ValueError(f"no answer to {query}")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    made = HttpServer("127.0.0.1", 0, {"/echo": echo, "/defect": defect})
    made.start()
    yield made
    made.stop()


def ask(server: HttpServer, request: bytes) -> tuple[int, bytes]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    if not answer:
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head or request.startswith(b"HEAD")
    return int(head.split(b" ")[1]), body


def test_paths_and_queries(server: HttpServer) -> None:
    assert ask(server, b"GET /echo?a=1&b=x%20y HTTP/1.1\r\nHost: x\r\n\r\n") == (200, b'{"a": "1", "b": "x y"}')
    assert ask(server, b"HEAD /echo HTTP/1.1\r\n\r\n") == (200, b"")
    status, body = ask(server, b"GET /other HTTP/1.1\r\n\r\n")
    assert status == 404
    assert b"/echo, /defect" in body
    assert ask(server, b"POST /echo HTTP/1.1\r\n\r\n")[0] == 405
    assert ask(server, b"GET /echo\r\n\r\n")[0] == 400


@pytest.mark.parametrize("target", [b"//[", b"http://[::1/echo", b"//a]b/echo"])
def test_what_is_no_address_is_answered(server: HttpServer, caplog: pytest.LogCaptureFixture, target: bytes) -> None:
    assert ask(server, b"GET " + target + b" HTTP/1.1\r\n\r\n")[0] == 400
    assert caplog.text == ""


def test_a_defect_is_answered_and_logged(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(server, b"GET /defect?x=1 HTTP/1.1\r\n\r\n")[0] == 500
    assert "/defect could not be answered" in caplog.text
    assert ask(server, b"GET /echo HTTP/1.1\r\n\r\n")[0] == 200


def test_a_request_without_end_is_dropped(server: HttpServer) -> None:
    assert ask(server, b"GET /echo HTTP/1.1\r\n" + b"a: b\r\n" * 10_000) == (0, b"")


def test_silent_connections_do_not_hold_others_up(server: HttpServer) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    assert ask(server, b"GET /echo HTTP/1.1\r\n\r\n")[0] == 200
    for each in silent:
        each.close()


def test_an_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it must not stay in memory, beside a socket that no longer counts, until the client goes."""
    monkeypatch.setattr(http_server, "_REQUEST_TIMEOUT_S", 0.1)
    asked, size = threading.Event(), 64 << 20

    async def huge(_query: Mapping[str, str]) -> Response:
        asked.set()
        return Response(200, "text/plain", bytes(size))

    made = HttpServer("127.0.0.1", 0, {"/huge": huge})
    made.start()
    with socket.create_connection(("127.0.0.1", made.port), timeout=60) as connection:
        connection.sendall(b"GET /huge HTTP/1.1\r\n\r\n")
        until(lambda: asked.is_set() and made.connection_count == 0)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 20):
                received += len(piece)
    made.stop()
    assert received < size


def test_a_port_in_use_is_refused(server: HttpServer) -> None:
    with pytest.raises(OSError, match="in use"):
        HttpServer("127.0.0.1", server.port, {})


def test_one_that_never_started_can_be_stopped() -> None:
    made = HttpServer("127.0.0.1", 0, {})
    made.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", made.port))
