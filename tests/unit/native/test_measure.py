"""The wrapper over the measuring runs, with a few KiB each."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.native import crc32c_name
from pybroker.native.errors import NativeError
from pybroker.native.measure import (
    COPY,
    CRC32C,
    READ,
    SYNC,
    WRITE,
    Exchange,
    FileRun,
    Measure,
    Stop,
    crc32c_names,
)
from tests.harness.fixtures import io_uring_allowed

_BLOCK_BYTES = 4096
_LENGTH = 16 * _BLOCK_BYTES
_SECONDS = 10.0


@pytest.fixture(params=["io_uring", "epoll"] if io_uring_allowed() else ["epoll"])
def measure(request: pytest.FixtureRequest) -> Iterator[Measure]:
    with Measure(request.param) as opened:
        assert opened.backend == request.param
        yield opened


def test_a_file_is_written_and_read_and_never_seen(measure: Measure, tmp_path: Path) -> None:
    measure.use_directory(tmp_path)
    written = measure.file(FileRun(WRITE, _BLOCK_BYTES, _LENGTH, syncs_at_end=True), _SECONDS, 2 * _LENGTH)
    assert (written.operations, written.bytes) == (32, 2 * _LENGTH)
    measure.drop()
    read = measure.file(FileRun(READ, _BLOCK_BYTES, _LENGTH, is_random=True), _SECONDS, _LENGTH)
    assert read.bytes == _LENGTH
    assert 0 < read.min_ns <= read.p50_ns <= read.p99_ns <= read.max_ns <= read.elapsed_ns
    synced = measure.file(FileRun(SYNC, _BLOCK_BYTES, _LENGTH), 0.0)
    assert (synced.operations, synced.bytes) == (1, 0)
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_there_is_no_file(measure: Measure) -> None:
    with pytest.raises(NativeError, match="no directory") as raised:
        measure.file(FileRun(READ, _BLOCK_BYTES, _LENGTH), _SECONDS)
    assert raised.value.errno == errno.ENOENT


def test_a_directory_that_is_not_there_is_named(measure: Measure, tmp_path: Path) -> None:
    with pytest.raises(NativeError, match=str(tmp_path / "missing")):
        measure.use_directory(tmp_path / "missing")


def test_the_cpu_with_each_implementation() -> None:
    before = crc32c_name()
    assert "portable" in crc32c_names()
    with Measure("epoll") as measure:
        for name in crc32c_names():
            assert measure.cpu(CRC32C, _BLOCK_BYTES, 0.0, name).bytes >= _BLOCK_BYTES
        assert measure.cpu(COPY, _BLOCK_BYTES, 0.0).bytes >= _BLOCK_BYTES
        with pytest.raises(NativeError, match="abacus"):
            measure.cpu(CRC32C, _BLOCK_BYTES, 0.0, "abacus")
    assert crc32c_name() == before


def test_requests_and_answers(measure: Measure) -> None:
    port = measure.serve(100)
    request = (16).to_bytes(4, "big") + bytes(16)
    exchange = Exchange("127.0.0.1", port, (request,), connection_count=2, in_flight=3, answer_min_bytes=100)
    result = measure.exchange(exchange, _SECONDS, 50 * 120)
    assert result.operations >= 50
    usage = measure.end_serving()
    assert usage.frames >= result.operations
    assert usage.cpu_ns > 0
    with pytest.raises(NativeError, match=f"127.0.0.1:{port}"):
        measure.exchange(exchange, _SECONDS)


def test_a_run_is_stopped_from_outside(tmp_path: Path) -> None:
    stop = Stop()
    with Measure("epoll", stop) as measure:
        measure.use_directory(tmp_path)
        stop.set()
        assert measure.file(FileRun(WRITE, _BLOCK_BYTES, _LENGTH), 3600.0).operations == 1
    assert stop.is_set
