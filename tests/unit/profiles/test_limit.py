"""What a broker is loaded with, and the bounds that it is held against."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded import recorded, without

from pybroker.native.measure import Stop
from pybroker.profiles.limit import process
from pybroker.profiles.limit.bound import Bound, bound_of
from pybroker.profiles.limit.connection import Connection, RefusedError, expect
from pybroker.profiles.limit.load import (
    FETCH_PATHS,
    FETCH_VERSION,
    PRODUCE_PATHS,
    PRODUCE_VERSION,
    FetchPath,
    ProducePath,
    batch,
    fetch,
    produce,
    record_count,
)
from pybroker.profiles.limit.run import Limit, PathLimit
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch


def decoded(frame: bytes, version: int) -> Any:
    """A request as a broker reads it."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    api_key = int.from_bytes(frame[4:6], "big")
    header, position = m.RequestHeader.decode(m.request_header_version(api_key, version), frame, 4)
    assert (header.request_api_version, header.client_id) == (version, "pybroker-profile-limit")
    request, end = m.request_class(api_key).decode(version, frame, position)
    assert end == len(frame)
    return request


def answer(response: m.Message, version: int) -> bytes:
    """A response behind its length."""
    assert response.API_KEY is not None
    header = m.ResponseHeader(correlation_id=1).encode(m.response_header_version(response.API_KEY, version))
    return header + response.encode(version)


@pytest.mark.parametrize("path", PRODUCE_PATHS)
def test_batches_are_valid_and_nearly_as_large_as_asked_for(path: ProducePath) -> None:
    data = batch(path.batch_bytes, 1234)
    assert 0.9 * path.batch_bytes <= len(data) <= path.batch_bytes
    (parsed,) = record_batch.parse(data)
    assert len(parsed.records) == record_count(path.batch_bytes)
    assert parsed.max_timestamp_ms == 1234


@pytest.mark.parametrize("path", PRODUCE_PATHS)
def test_produce_goes_to_every_partition(path: ProducePath) -> None:
    exchange = produce(path, "topic", "127.0.0.1", 9092, 1234)
    requests = [decoded(frame, PRODUCE_VERSION) for frame in exchange.frames]
    assert [each.topic_data[0].partition_data[0].index for each in requests] == list(range(path.partition_count))
    assert {each.acks for each in requests} == {-1}
    row = m.ProduceResponse.PartitionProduceResponse(index=2, error_code=0x1234, base_offset=77)
    topics = [m.ProduceResponse.TopicProduceResponse(name="topic", partition_responses=[row])]
    found = answer(m.ProduceResponse(responses=topics), PRODUCE_VERSION)
    assert found[exchange.error_position :][:2] == b"\x12\x34"


@pytest.mark.parametrize("path", FETCH_PATHS)
def test_fetches_go_through_the_log(path: FetchPath) -> None:
    exchange = fetch(path, "topic", "127.0.0.1", 9092, 10_000)
    assert exchange.counter_step == path.fetch_bytes // (16 << 10) * record_count(16 << 10)
    assert exchange.counter_count == 10_000 // exchange.counter_step
    at = exchange.counter_position
    for partition, frame in enumerate(exchange.frames):
        counted = frame[:at] + (exchange.counter_step * 3).to_bytes(8, "big") + frame[at + 8 :]
        (wanted,) = decoded(counted, FETCH_VERSION).topics[0].partitions
        assert (wanted.partition, wanted.fetch_offset) == (partition, exchange.counter_step * 3)
        assert wanted.partition_max_bytes == path.fetch_bytes
    row = m.FetchResponse.PartitionData(partition_index=2, error_code=0x1234, records=b"12345")
    topics = [m.FetchResponse.FetchableTopicResponse(topic="topic", partitions=[row])]
    found = answer(m.FetchResponse(responses=topics), FETCH_VERSION)
    assert found[exchange.error_position :][:2] == b"\x12\x34"


def test_bounds_of_a_recorded_machine() -> None:
    measurement = recorded("virtual-machine")
    large, medium, small, lone = (bound_of(path, measurement, is_durable=False) for path in PRODUCE_PATHS)
    assert (large.bytes_per_second, large.bound_by) == (measurement.rate("write.fresh.1MiB"), "write.fresh.1MiB")
    assert small.bound_by == "receive.1KiB"
    received, written = measurement.cpu("receive.16KiB"), measurement.cpu("write.direct.1MiB")
    checked = min(each.cpu_seconds_per_gb or 9 for name, each in measurement.results.items() if name[:6] == "crc32c")
    assert received is not None
    assert written is not None
    assert medium.cpu_seconds_per_gb == pytest.approx(received + written + checked, abs=0.01)
    assert lone == Bound(None, None, None, measurement.p50_us("round_trip.spin_0us"))
    assert bound_of(FETCH_PATHS[0], measurement, is_durable=False) == Bound(
        measurement.rate("send.1MiB"), "send.1MiB", measurement.cpu("send.1MiB"), None
    )


def test_bounds_of_durable_acknowledgements() -> None:
    measurement = recorded("virtual-machine")
    large, *_, lone = (bound_of(path, measurement, is_durable=True) for path in PRODUCE_PATHS)
    assert large.bound_by == "write.durable.256KiB"
    trip, durable = measurement.p50_us("round_trip.spin_0us"), measurement.p50_us("write.durable.4KiB")
    assert trip is not None
    assert durable is not None
    assert lone.p50_us == pytest.approx(trip + durable)


def test_what_was_not_measured_bounds_nothing() -> None:
    nothing = without(recorded("virtual-machine"), "")
    for path in (*PRODUCE_PATHS, *FETCH_PATHS):
        bound = bound_of(path, nothing, is_durable=True)
        assert (bound.bytes_per_second, bound.cpu_seconds_per_gb, bound.p50_us) == (None, None, None)


def test_shares() -> None:
    figures = recorded("virtual-machine").results["receive.1KiB"].replace(bytes_per_second=50.0, p50_us=40.0)
    path = PathLimit("produce.1KiB", figures, 8.0, Bound(200.0, "receive.1KiB", 2.0, 10.0))
    assert (path.rate_share, path.cpu_share, path.latency_share) == (0.25, 0.25, 0.25)
    hidden = replace(path, cpu_seconds_per_gb=None, bound=Bound(None, None, None, None))
    assert (hidden.rate_share, hidden.cpu_share, hidden.latency_share) == (None, None, None)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_who_listens_is_found(family: socket.AddressFamily) -> None:
    with socket.socket(family) as listener:
        listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert process.listening_pid(port) is None, "it does not listen yet"
        listener.listen()
        assert process.listening_pid(port) == os.getpid()
    assert process.listening_pid(port) is None
    used_ns = process.cpu_ns(os.getpid())
    assert 0 < used_ns <= 2 * (sum(os.times()[:2]) + 1) * 1e9


def test_what_the_kernel_hides_is_not_told(tmp_path: Path) -> None:
    assert process.listening_pid(9092, tmp_path) is None


def test_what_is_no_broker_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, Connection(*listener.getsockname()) as connection:
        listener.accept()[0].close()
        limit = Limit(connection, recorded("virtual-machine"), Stop(), seconds=1.0, is_durable=False)
        with pytest.raises((RefusedError, ConnectionError)):
            limit.run(lambda name, share: None)


def test_errors_are_named() -> None:
    expect(0, "nothing")
    with pytest.raises(RefusedError, match="making it: TOPIC_ALREADY_EXISTS"):
        expect(36, "making it")
    with pytest.raises(RefusedError, match="making it: error code 9999"):
        expect(9999, "making it")
