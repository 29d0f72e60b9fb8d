"""Encoded Metadata answers: bodies for many askers made from parts that are encoded once. Pure, on one thread.

A response body is a head (brokers, cluster id, controller), the topics, and a tail. Topics are kept encoded per (api
version, listener, whether operations are asked for), as long as the image has the same `TopicImage` object and the same
brokers. The answer for all topics is kept whole. A large answer is made in slices of the loop. The content of an answer
follows Kafka's KRaft brokers (errors per partition, offline replicas). Memory is bounded by the number of topics times
the variants in use, of which only the latest few are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pybroker.config.topic import INTERNAL_TOPICS
from pybroker.metadata.image import (
    ClusterImage,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    TopicsImage,
    is_online,
)
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.uuids import ZERO_UUID
from pybroker.turns import in_slices, run_in_slices
from pybroker.values import Value

NO_OPERATIONS = -(2**31)
# Bit n stands for AclOperation n (KIP-430): what may be done when nobody restricts anything.
ALL_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))

_FLEXIBLE_SINCE = 9
_CLUSTER_OPERATIONS_VERSIONS = range(8, 11)
_ERROR_CODE_SINCE = 13
_LISTENER_NOT_FOUND_SINCE = 6
_MAX_VARIANTS = 16
_JOINED_COUNT = 1_000
#: A topic with more is encoded in slices of the loop.
_FEW_PARTITIONS = 200
#: So many rows with errors are encoded together: to encode each by itself takes several times as long.
_ROWS_AT_ONCE = 64

Body = bytes | list[bytes]
"""An encoded body; a large one in parts, as it takes long to join them."""

Topic = m.MetadataResponse.MetadataResponseTopic
Partition = m.MetadataResponse.MetadataResponsePartition


class Variant(Value):
    """The properties that make answers differ besides the topics asked for. `listener` is the one the client is
    connected to."""

    version: int
    listener: str
    with_topic_operations: bool = False
    with_cluster_operations: bool = False


@dataclass(slots=True)
class _Encoded:
    """The kept answers for one variant."""

    cluster: ClusterImage
    topics: TopicsImage
    head: bytes
    by_id: dict[bytes, tuple[TopicImage, bytes]] = field(default_factory=dict)
    all_topics: Body | None = None


class MetadataCache:
    """Answers Metadata requests. `node_id` is this broker, which is named as the controller."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.encoded_topic_count = 0
        self._variants: OrderedDict[Variant, _Encoded] = OrderedDict()

    async def all_topics(self, image: MetadataImage, variant: Variant) -> Body:
        """The body that lists all topics."""
        encoded = self._current(image, variant)
        if encoded.all_topics is not None:
            return encoded.all_topics
        fragments = _Fragments()
        async for topic in in_slices(image.topics.by_id.values(), 1):
            fragments.add(await self._fragment(image, encoded, topic, variant))
        body = fragments.body(encoded.head, variant)
        # Meanwhile the image may have become another.
        if encoded.topics is image.topics:
            encoded.all_topics = body
        return body

    async def some_topics(
        self,
        image: MetadataImage,
        variant: Variant,
        topics: Sequence[TopicImage],
        others: Iterable[m.MetadataResponse.MetadataResponseTopic] = (),
    ) -> Body:
        """The body that lists `topics`, which are of `image`, and `others`: rows with errors, made by the caller."""
        encoded = self._current(image, variant)
        fragments = _Fragments()
        async for topic in in_slices(topics, 1):
            fragments.add(await self._fragment(image, encoded, topic, variant))
        rows: list[m.MetadataResponse.MetadataResponseTopic] = []
        async for row in in_slices(others):
            rows.append(row)
            if len(rows) == _ROWS_AT_ONCE:
                fragments.add(_encode_topics(rows, variant), len(rows))
                rows.clear()
        if rows:
            fragments.add(_encode_topics(rows, variant), len(rows))
        return fragments.body(encoded.head, variant)

    def _current(self, image: MetadataImage, variant: Variant) -> _Encoded:
        """The kept answers for the variant, brought up to the image."""
        encoded = self._variants.get(variant)
        if encoded is None or encoded.cluster is not image.cluster:
            encoded = _Encoded(image.cluster, image.topics, self._encode_head(image, variant))
            self._variants[variant] = encoded
            if len(self._variants) > _MAX_VARIANTS:
                self._variants.popitem(last=False)
        elif encoded.topics is not image.topics:
            encoded.topics, encoded.all_topics = image.topics, None
            known = image.topics.by_id
            if len(encoded.by_id) > len(known):
                encoded.by_id = {key: value for key, value in encoded.by_id.items() if key in known}
        self._variants.move_to_end(variant)
        return encoded

    async def _fragment(self, image: MetadataImage, encoded: _Encoded, topic: TopicImage, variant: Variant) -> bytes:
        kept = encoded.by_id.get(topic.id)
        if kept is not None and kept[0] is topic:
            return kept[1]
        self.encoded_topic_count += 1
        if len(topic.partitions) <= _FEW_PARTITIONS:
            fragment = _encode_topics([topic_row(image.cluster, topic, variant)], variant)
        else:
            fragment = await run_in_slices(_large_topic_steps(image.cluster, topic, variant))
        # Meanwhile the topic may have changed or gone; what is gone would be kept for good.
        if encoded.topics.by_id.get(topic.id) is topic:
            encoded.by_id[topic.id] = (topic, fragment)
        return fragment

    def _encode_head(self, image: MetadataImage, variant: Variant) -> bytes:
        response = m.MetadataResponse(
            brokers=[
                m.MetadataResponse.MetadataResponseBroker(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
                for broker in image.cluster.brokers.values()
                if not broker.fenced and (endpoint := broker.endpoint(variant.listener)) is not None
            ],
            cluster_id=image.cluster_id,
            controller_id=self.node_id,
        )
        return _without_topics(response.encode(variant.version), variant)


def topic_row(cluster: ClusterImage, topic: TopicImage, variant: Variant) -> m.MetadataResponse.MetadataResponseTopic:
    """One topic's row, not encoded."""
    return Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[partition_row(cluster, index, each, variant) for index, each in topic.partitions.items()],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS if variant.with_topic_operations else NO_OPERATIONS,
    )


def error_row(
    code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID
) -> m.MetadataResponse.MetadataResponseTopic:
    """A row for a topic that cannot be described."""
    is_internal = name in INTERNAL_TOPICS
    return Topic(error_code=code, name=name, topic_id=topic_id, is_internal=is_internal)


def partition_row(
    cluster: ClusterImage, index: int, partition: PartitionRegistration, variant: Variant
) -> m.MetadataResponse.MetadataResponsePartition:
    """One partition's row, not encoded. A leader whom the client cannot reach is -1, with an error."""
    replicas, isr = list(partition.replicas), list(partition.isr)
    row = Partition(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        offline_replicas=[each for each in replicas if not _is_online(cluster, partition, each, variant)],
    )
    leader = cluster.brokers.get(partition.leader)
    if leader is None or leader.fenced or leader.endpoint(variant.listener) is None:
        is_listener_missing = leader is not None and variant.version >= _LISTENER_NOT_FOUND_SINCE
        row.error_code = ErrorCode.LISTENER_NOT_FOUND if is_listener_missing else ErrorCode.LEADER_NOT_AVAILABLE
        row.leader_id = -1
    if variant.version == 0:
        # The oldest clients do not expect replicas that are not in the list of brokers.
        alive = [each for each in replicas if _is_alive(cluster, each, variant)]
        alive_isr = [each for each in isr if _is_alive(cluster, each, variant)]
        if row.error_code == ErrorCode.NONE and (len(alive) < len(replicas) or len(alive_isr) < len(isr)):
            row.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas, isr = alive, alive_isr
    row.replica_nodes, row.isr_nodes = replicas, isr
    return row


def _is_alive(cluster: ClusterImage, broker_id: int, variant: Variant) -> bool:
    broker = cluster.brokers.get(broker_id)
    return broker is not None and not broker.fenced and broker.endpoint(variant.listener) is not None


def _is_online(cluster: ClusterImage, partition: PartitionRegistration, broker_id: int, variant: Variant) -> bool:
    if not _is_alive(cluster, broker_id, variant):
        return False
    return is_online(cluster.brokers[broker_id].directories, partition.directory(broker_id))


# --- parts of an encoded body: head, number of topics, topics, tail --------------------------------------------------


def _tail(variant: Variant) -> bytes:
    """Everything after the topics: cluster operations, error code and tagged fields, as far as the version has them."""
    operations = ALL_CLUSTER_OPERATIONS if variant.with_cluster_operations else NO_OPERATIONS
    return b"".join(
        (
            operations.to_bytes(4, "big", signed=True) if variant.version in _CLUSTER_OPERATIONS_VERSIONS else b"",
            bytes(2) if variant.version >= _ERROR_CODE_SINCE else b"",
            bytes(1) if variant.version >= _FLEXIBLE_SINCE else b"",
        )
    )


def _count(topic_count: int, version: int) -> bytes:
    if version < _FLEXIBLE_SINCE:
        return topic_count.to_bytes(4, "big")
    # A compact array's length is one more, as an unsigned varint.
    value, out = topic_count + 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _without_topics(body: bytes, variant: Variant) -> bytes:
    """The head of a body that was encoded without topics."""
    return body[: len(body) - len(_tail(variant)) - len(_count(0, variant.version))]


def _large_topic_steps(cluster: ClusterImage, topic: TopicImage, variant: Variant) -> Generator[None, None, bytes]:
    """As `_encode_topics` of its row; yields where it may be interrupted."""
    row = topic_row(cluster, topic.replace(partitions={}), variant)
    for index, each in topic.partitions.items():
        row.partitions.append(partition_row(cluster, index, each, variant))
        yield
    pieces = []
    for piece in m.MetadataResponse(topics=[row]).encode_in_slices(variant.version):
        pieces.append(piece)
        yield
    start, tail_bytes = _around_topic(variant)
    with_topic = b"".join(pieces)
    return with_topic[start : len(with_topic) - tail_bytes]


def _encode_topics(rows: list[m.MetadataResponse.MetadataResponseTopic], variant: Variant) -> bytes:
    """The bytes of some topics within a body: what a body has more with them than without."""
    assert 0 < len(rows) <= _ROWS_AT_ONCE
    with_topics = m.MetadataResponse(topics=rows).encode(variant.version)
    start, tail_bytes = _around_topic(variant)
    return with_topics[start : len(with_topics) - tail_bytes]


@lru_cache(maxsize=_MAX_VARIANTS)
def _around_topic(variant: Variant) -> tuple[int, int]:
    """How many bytes are in front of the topics of a body without brokers, and behind them. A count up to
    `_ROWS_AT_ONCE` takes as many bytes as 1."""
    head = _without_topics(m.MetadataResponse().encode(variant.version), variant)
    return len(head) + len(_count(1, variant.version)), len(_tail(variant))


class _Fragments:
    """Encoded topics; few of them are kept apart, as it takes long to join many."""

    def __init__(self) -> None:
        self.count = 0
        self._joined: list[bytes] = []
        self._apart: list[bytes] = []

    def add(self, fragment: bytes, topic_count: int = 1) -> None:
        self.count += topic_count
        self._apart.append(fragment)
        if len(self._apart) == _JOINED_COUNT:
            self._joined.append(b"".join(self._apart))
            self._apart.clear()

    def body(self, head: bytes, variant: Variant) -> Body:
        """With what is before and behind them."""
        head += _count(self.count, variant.version)
        parts = [head, *self._joined, *self._apart, _tail(variant)]
        return b"".join(parts) if not self._joined else parts
