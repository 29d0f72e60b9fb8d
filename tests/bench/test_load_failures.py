"""What the load generator counts when requests fail: the failures by their kind, and no throughput."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pybroker.perf.generator import find_generator
from pybroker.protocol import messages as m

_PRODUCE, _FETCH, _LIST_OFFSETS, _CREATE_TOPICS = 0, 1, 2, 19
_FETCH_VERSION, _PRODUCE_VERSION = 12, 9


def _receive(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


class _Answers:
    """A server that answers each API key by a function of the number of its requests; it gives the encoded body."""

    def __init__(self, answers: dict[int, Callable[[int], bytes]]) -> None:
        self._answers = {_CREATE_TOPICS: _created, _LIST_OFFSETS: _offsets, **answers}
        self._counts: dict[int, int] = {}
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while (head := _receive(connection, 12)) is not None:
                size, key, _, correlation_id = struct.unpack(">ihhi", head)
                _receive(connection, size - 8)
                number = self._counts[key] = self._counts.get(key, 0) + 1
                body = struct.pack(">i", correlation_id) + self._answers[key](number)
                connection.sendall(struct.pack(">i", len(body)) + body)


def _created(_number: int) -> bytes:
    topic = m.CreateTopicsResponse.CreatableTopicResult(name="t")
    return m.CreateTopicsResponse(topics=[topic]).encode(2)


def _offsets(number: int) -> bytes:
    row = m.ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=0 if number % 2 else 10)
    topic = m.ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[row])
    return m.ListOffsetsResponse(topics=[topic]).encode(2)


def _fetched(code: int) -> bytes:
    row = m.FetchResponse.PartitionData(
        partition_index=0, error_code=code, high_watermark=10, last_stable_offset=10, records=b""
    )
    topic = m.FetchResponse.FetchableTopicResponse(topic="t", partitions=[row])
    return b"\0" + m.FetchResponse(responses=[topic]).encode(_FETCH_VERSION)


def _produced(code: int) -> bytes:
    row = m.ProduceResponse.PartitionProduceResponse(index=0, error_code=code, base_offset=-1 if code else 0)
    topic = m.ProduceResponse.TopicProduceResponse(name="t", partition_responses=[row])
    return b"\0" + m.ProduceResponse(responses=[topic]).encode(_PRODUCE_VERSION)


def _run(answers: dict[int, Callable[[int], bytes]], *arguments: str) -> dict[str, Any]:
    server = _Answers(answers)
    try:
        command = [str(find_generator()), *arguments, "--port", str(server.port), "--topic", "t", "--seconds", "0.3"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        server.close()
    assert ended.returncode == 1, ended.stderr
    return dict(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("mode", "answers", "kind"),
    [
        ("fetch", {_FETCH: lambda _: _fetched(0)}, "empty"),
        ("fetch", {_FETCH: lambda _: _fetched(56)}, "56"),
        ("produce", {_PRODUCE: lambda _: _produced(7)}, "7"),
        ("produce", {_PRODUCE: lambda _: _produced(-1)}, "-1"),
        ("produce", {_PRODUCE: lambda _: b"\0"}, "malformed"),
    ],
)
def test_failures_are_no_throughput(mode: str, answers: dict[int, Callable[[int], bytes]], kind: str) -> None:
    result = _run(answers, mode)
    assert list(result["errors"]) == [kind]
    assert result["errors"][kind] > 0
    counted = [result[name] for name in ("requests", "payload_bytes", "wire_bytes", "requests_per_s", "mb_per_s")]
    assert counted == [0] * 5


def test_what_succeeds_between_failures_counts() -> None:
    result = _run({_PRODUCE: lambda number: _produced(7 if number % 3 == 0 else 0)}, "produce")
    failed = result["errors"].pop("7")
    assert not result["errors"]
    assert failed > 0
    assert 2 * failed <= result["requests"] <= 2 * failed + 2
