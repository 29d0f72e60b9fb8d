"""Clients are held to their quotas as by Apache Kafka: the same requests to both are told of like throttle times, and a
client that obeys gets as much from one as from the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pybroker.protocol import messages as m
from pybroker.protocol.error_codes import ErrorCode
from pybroker.protocol.record_batch import Record, build
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker

_TOPIC = "limited"
_RATE = 200_000.0
_BATCH_BYTES = 250_000
#: After it come batches of `_BATCH_BYTES`. Offset 1 has one that is as much as all windows together allow: whether a
#: fetch of it may ever be answered depends on the moment, with Apache Kafka too.
_OFFSET_OF_BIG_BATCH = 1
#: Rates are taken over 4 s, so that a test sees them settle.
_WINDOW = {"quota.window.num": "5", "quota.window.size.seconds": "1"}
_SECONDS = 15.0
#: Apache Kafka answers before its brokers have applied what was set.
_APPLIED_SECONDS = 2.0


@contextmanager
def _brokers() -> Iterator[dict[str, int]]:
    with (
        KafkaBroker(node_id=1, overrides=_WINDOW) as kafka,
        BrokerProcess(overrides={"node.id": "1", **_WINDOW}) as own,
    ):
        yield {"kafka": kafka.port, "own": own.port}


def _alter(client: ProtocolClient, entity: dict[str, str | None], **values: float | None) -> None:
    part, op = m.AlterClientQuotasRequest.EntityData, m.AlterClientQuotasRequest.OpData
    entry = m.AlterClientQuotasRequest.EntryData(
        entity=[part(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    (row,) = client.call(m.AlterClientQuotasRequest(entries=[entry]), 1).entries
    assert row.error_code == 0, row.error_message
    time.sleep(_APPLIED_SECONDS)


def _create(client: ProtocolClient) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic(name=_TOPIC, num_partitions=1, replication_factor=1)
    client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    deadline = time.monotonic() + 60
    while _produce(client, 100)[0] != 0:
        assert time.monotonic() < deadline, "the topic is not served"
        time.sleep(0.1)


def _produce(client: ProtocolClient, size_bytes: int) -> tuple[int, int]:
    """Error code and throttle time."""
    batch = build(0, -1, [Record(None, bytes(size_bytes))], timestamp_ms=time.time_ns() // 1_000_000)
    data = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    topics = [m.ProduceRequest.TopicProduceData(name=_TOPIC, partition_data=[data])]
    answer = client.call(m.ProduceRequest(acks=1, timeout_ms=60_000, topic_data=topics), 9)
    return answer.responses[0].partition_responses[0].error_code, answer.throttle_time_ms


def _fetch(client: ProtocolClient, offset: int) -> tuple[int, int]:
    """Bytes of records and throttle time."""
    asked = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_BATCH_BYTES)
    topic = m.FetchRequest.FetchTopic(topic=_TOPIC, partitions=[asked])
    request = m.FetchRequest(max_wait_ms=100, min_bytes=1, session_epoch=-1, topics=[topic])
    answer = client.call(request, 12)
    if not answer.responses:
        return 0, answer.throttle_time_ms
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == 0
    return len(partition.records or b""), answer.throttle_time_ms


def _rate_of_producer(client: ProtocolClient) -> float:
    """Bytes per second, and that a second request is not heard before it is time."""
    began, sent_bytes = time.monotonic(), 0
    while time.monotonic() < began + _SECONDS:
        error, throttle_ms = _produce(client, _BATCH_BYTES)
        told = time.monotonic()
        assert error == 0
        sent_bytes += _BATCH_BYTES
        if throttle_ms > 0:
            client.call(m.MetadataRequest(topics=[], allow_auto_topic_creation=False), 9)  # as any request
            assert time.monotonic() - told >= throttle_ms / 1000 - 0.1
    return sent_bytes / (time.monotonic() - began)


def _rate_of_consumer(client: ProtocolClient) -> float:
    began, fetched_bytes = time.monotonic(), 0
    while time.monotonic() < began + _SECONDS:
        size_bytes, throttle_ms = _fetch(client, _OFFSET_OF_BIG_BATCH + 1)
        assert (size_bytes == 0) == (throttle_ms > 0)
        fetched_bytes += size_bytes
    return fetched_bytes / (time.monotonic() - began)


def _is_held_back(client: ProtocolClient) -> bool:
    """By a bound of a byte per second, which the client does not wait for."""
    return _produce(client, 20_000)[1] > 0


def test_first_throttle_times_and_rates_are_alike() -> None:
    rates: dict[str, tuple[int, float, float]] = {}
    with _brokers() as ports:
        for name, port in ports.items():
            with ProtocolClient(port, client_id="app") as client, ProtocolClient(port, client_id="admin") as admin:
                _create(admin)
                _alter(admin, {"client-id": "app"}, producer_byte_rate=_RATE, consumer_byte_rate=_RATE)
                _, first_ms = _produce(client, 4 * _BATCH_BYTES)
                time.sleep(6)
                rates[name] = (first_ms, _rate_of_producer(client), _rate_of_consumer(client))
    print(rates)
    kafka, own = rates["kafka"], rates["own"]
    assert abs(own[0] - kafka[0]) < 100, rates
    for kafkas, owns in zip(kafka[1:], own[1:], strict=True):
        assert 0.8 * kafkas < owns < 1.25 * kafkas, rates


def test_whose_quota_holds() -> None:
    """Who is held back, as quotas are set one after the other, each above the one before it in Kafka's order."""
    user = "ANONYMOUS"
    levels: list[dict[str, str | None]] = [
        {"client-id": None},
        {"client-id": "app"},
        {"user": None},
        {"user": None, "client-id": None},
        {"user": None, "client-id": "app"},
        {"user": user},
        {"user": user, "client-id": None},
        {"user": user, "client-id": "app"},
    ]
    found: dict[str, list[list[bool]]] = {"kafka": [], "own": []}
    with _brokers() as ports:
        for name, port in ports.items():
            with ProtocolClient(port, client_id="admin") as admin:
                _create(admin)
                for index, level in enumerate(levels):
                    # In turn one that holds back, and one that does not.
                    _alter(admin, level, producer_byte_rate=1.0 if index % 2 == 0 else 1e12)
                    with ExitStack() as stack:
                        clients = [
                            stack.enter_context(ProtocolClient(port, client_id=each)) for each in ("app", "other", "")
                        ]
                        found[name].append([_is_held_back(each) for each in clients])
    assert found["own"] == found["kafka"]
    assert any(any(row) for row in found["own"])
    assert not all(all(row) for row in found["own"])


def _changes(port: int, client_id: str, versions: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Error code and throttle time of topics with 3, 20, 2 partitions, of 5 more for the first, and of its deletion.

    Each is asked for on a connection of its own: Apache Kafka holds back the one that was told to wait.
    """

    def call(request: m.Message, version: int) -> tuple[int, int]:
        with ProtocolClient(port, client_id=client_id) as client:
            answer = client.call(request, version)
        (row,) = next(rows for name in ("topics", "results", "responses") if (rows := getattr(answer, name, None)))
        return row.error_code, answer.throttle_time_ms

    def creation(index: int, count: int) -> m.Message:
        topic = m.CreateTopicsRequest.CreatableTopic(
            name=f"{client_id}-{index}", num_partitions=count, replication_factor=1
        )
        return m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)

    more = m.CreatePartitionsRequest.CreatePartitionsTopic(name=f"{client_id}-0", count=8, assignments=None)
    return [
        *[call(creation(index, count), versions[0]) for index, count in enumerate((3, 20, 2))],
        call(m.CreatePartitionsRequest(topics=[more], timeout_ms=60_000), versions[1]),
        call(m.DeleteTopicsRequest(topic_names=[f"{client_id}-0"], timeout_ms=60_000), versions[2]),
    ]


def test_changes_of_topics() -> None:
    """A burst is let through; what follows is refused or, in versions of before that, told to wait."""
    windows = {"controller.quota.window.num": "5", "controller.quota.window.size.seconds": "1"}
    found: dict[str, list[list[tuple[int, int]]]] = {}
    with (
        KafkaBroker(node_id=1, overrides=windows) as kafka,
        BrokerProcess(overrides={"node.id": "1", **windows}) as own,
    ):
        for name, port in {"kafka": kafka.port, "own": own.port}.items():
            with ProtocolClient(port, client_id="admin") as admin:
                for client_id in ("new", "old"):
                    _alter(admin, {"client-id": client_id}, controller_mutation_rate=1.0)
            found[name] = [_changes(port, "new", (7, 3, 5)), _changes(port, "old", (5, 2, 4))]
    print(found)
    for kafkas, owns in zip(found["kafka"], found["own"], strict=True):
        assert [code for code, _ in owns] == [code for code, _ in kafkas], found
        for (_, kafka_ms), (_, own_ms) in zip(kafkas, owns, strict=True):
            # The bucket fills meanwhile, and Apache Kafka takes longer.
            assert abs(own_ms - kafka_ms) < 5_000, found
            assert (own_ms > 0) == (kafka_ms > 0), found
    assert found["own"][0][2][0] == ErrorCode.THROTTLING_QUOTA_EXCEEDED
