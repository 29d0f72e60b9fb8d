"""Encoded Metadata answers: equal to what the codec writes, kept while nothing changed, renewed when something did."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pybroker.metadata.cache import ALL_CLUSTER_OPERATIONS, MetadataCache, Variant, error_row, topic_row
from pybroker.metadata.image import MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from tests.harness.look_counter import LookCounter

Replay = Callable[..., MetadataImage]
VERSIONS = range(m.MetadataResponse.MIN_VERSION, m.MetadataResponse.MAX_VERSION + 1)


def _plain(image: MetadataImage, variant: Variant, rows: list[Any]) -> bytes:
    """The body as the codec alone writes it."""
    response = m.MetadataResponse(
        brokers=[m.MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=9092, rack=None)],
        cluster_id="cluster",
        controller_id=1,
        topics=rows,
    )
    if variant.with_cluster_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response.encode(variant.version)


@pytest.mark.parametrize("version", VERSIONS)
def test_bodies_equal_the_codecs(image: MetadataImage, replay: Replay, version: int) -> None:
    records: list[Any] = []
    for number in range(200):
        records.append(m.TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big")))
    image = replay(image, *records)
    cache = MetadataCache(1)
    with_operations = version in (8, 9, 10)
    variant = Variant(version, "PLAINTEXT", with_operations, with_operations)
    rows = [topic_row(image.cluster, topic, variant) for topic in image.topics.by_id.values()]
    assert asyncio.run(cache.all_topics(image, variant)) == _plain(image, variant, rows)
    alpha = image.topics.by_name["alpha"]
    missing = error_row(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nope")
    body = asyncio.run(cache.some_topics(image, variant, [alpha], [missing]))
    assert body == _plain(image, variant, [topic_row(image.cluster, alpha, variant), missing])
    assert asyncio.run(cache.some_topics(image, variant, [])) == _plain(image, variant, [])
    decoded, end = m.MetadataResponse.decode(version, body)
    assert end == len(body)
    assert [topic.name for topic in decoded.topics] == ["alpha", "nope"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 200])
def test_rows_with_errors_are_encoded_as_one_by_one(image: MetadataImage, version: int, count: int) -> None:
    variant = Variant(version, "PLAINTEXT")
    missing = [error_row(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"nope-{number}") for number in range(count)]
    body = asyncio.run(MetadataCache(1).some_topics(image, variant, [], iter(missing)))
    assert body == _plain(image, variant, missing)


@pytest.mark.parametrize("is_deleted", [True, False])
@pytest.mark.parametrize("partition_count", [3, 1_000])
def test_a_topic_that_goes_or_changes_while_it_is_answered_is_not_kept(
    image: MetadataImage, replay: Replay, monkeypatch: pytest.MonkeyPatch, is_deleted: bool, partition_count: int
) -> None:
    topic_id = b"\7" * 16
    fields: dict[str, Any] = {"topic_id": topic_id, "replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0}
    partitions = [m.PartitionRecord(partition_id=index, **fields) for index in range(partition_count)]
    old = replay(image, m.TopicRecord(name="large", topic_id=topic_id), *partitions)
    change = (
        m.RemoveTopicRecord(topic_id=topic_id)
        if is_deleted
        else m.PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=-1)
    )
    new = replay(old, change)
    variant = Variant(9, "PLAINTEXT")
    cache = MetadataCache(1)

    async def run() -> None:
        waiting, may_go_on = asyncio.Event(), asyncio.Event()

        async def held(items: Any, every: int = 16) -> Any:
            for item in items:
                if not may_go_on.is_set():
                    waiting.set()
                    await may_go_on.wait()
                yield item

        with monkeypatch.context() as patch:
            patch.setattr("pybroker.metadata.cache.in_slices", held)
            answering = asyncio.create_task(cache.some_topics(old, variant, [old.topics.by_name["large"]]))
            await waiting.wait()
        await cache.all_topics(new, variant)
        may_go_on.set()
        await answering
        kept = cache._variants[variant].by_id
        assert {key: topic for key, (topic, _) in kept.items()} == dict(new.topics.by_id)

    asyncio.run(run())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_with_many_partitions_is_encoded_in_slices(image: MetadataImage, replay: Replay, version: int) -> None:
    partition = {"topic_id": b"t" * 16, "replicas": [1], "isr": [1], "leader": 1}
    image = replay(image, *[m.PartitionRecord(partition_id=number, **partition) for number in range(1_000)])
    topic = image.topics.by_name["alpha"]
    variant = Variant(version, "PLAINTEXT")

    async def run() -> bytes:
        looks = LookCounter()
        body = await MetadataCache(1).some_topics(image, variant, [topic])
        looks.check(1_000)
        assert isinstance(body, bytes)
        return body

    assert asyncio.run(run()) == _plain(image, variant, [topic_row(image.cluster, topic, variant)])


def test_only_what_changed_is_encoded_again(image: MetadataImage, replay: Replay) -> None:
    cache = MetadataCache(1)
    variant = Variant(12, "PLAINTEXT")
    image = replay(image, m.TopicRecord(name="beta", topic_id=b"b" * 16))
    first = asyncio.run(cache.all_topics(image, variant))
    assert asyncio.run(cache.all_topics(image, variant)) is first
    assert cache.encoded_topic_count == 2
    config = m.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="1")
    assert asyncio.run(cache.all_topics(replay(image, config), variant)) is first
    changed = replay(image, m.PartitionChangeRecord(topic_id=b"t" * 16, partition_id=0, leader=1))
    assert asyncio.run(cache.all_topics(changed, variant)) != first
    assert cache.encoded_topic_count == 3
    fenced = replay(image, m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1))
    asyncio.run(cache.all_topics(fenced, variant))
    assert cache.encoded_topic_count == 5


def test_a_deleted_topic_is_gone_from_all_answers(image: MetadataImage, replay: Replay) -> None:
    cache = MetadataCache(1)
    variant = Variant(12, "PLAINTEXT")
    asyncio.run(cache.all_topics(image, variant))
    after = replay(image, m.RemoveTopicRecord(topic_id=b"t" * 16))
    assert asyncio.run(cache.all_topics(after, variant)) == _plain(after, variant, [])


@pytest.mark.parametrize(
    ("version", "listener", "code", "leader"),
    [
        (12, "PLAINTEXT", ErrorCode.NONE, 1),
        (12, "OTHER", ErrorCode.LISTENER_NOT_FOUND, -1),
        (5, "OTHER", ErrorCode.LEADER_NOT_AVAILABLE, -1),
        (0, "OTHER", ErrorCode.LEADER_NOT_AVAILABLE, -1),
    ],
)
def test_partitions_by_listener(image: MetadataImage, version: int, listener: str, code: int, leader: int) -> None:
    topic = topic_row(image.cluster, image.topics.by_name["alpha"], Variant(version, listener))
    assert {(each.error_code, each.leader_id) for each in topic.partitions} == {(code, leader)}
    assert topic.partitions[0].replica_nodes == ([] if version == 0 and leader < 0 else [1])


def test_offline_replicas(image: MetadataImage, replay: Replay) -> None:
    variant = Variant(12, "PLAINTEXT")
    change = m.PartitionChangeRecord(topic_id=b"t" * 16, partition_id=0, replicas=[1, 2], isr=[1])
    image = replay(image, change)
    rows = topic_row(image.cluster, image.topics.by_name["alpha"], variant).partitions
    assert [each.offline_replicas for each in rows] == [[2], []]
    moved = m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, log_dirs=[b"z" * 16])
    image = replay(image, moved)
    rows = topic_row(image.cluster, image.topics.by_name["alpha"], variant).partitions
    assert [each.offline_replicas for each in rows] == [[1, 2], [1]]
