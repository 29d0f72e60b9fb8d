"""Requests about topics, settings, offsets and the cluster, good and bad ones, and what of their answers is compared.

Each step is sent to a broker of its own and answered from the state that the steps before it have left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import Record, build
from pybroker.testing.protocol_client import ProtocolClient

NODE_ID = 1
TOPIC, BROKER = 2, 4
#: Settings that differ between the two brokers because they were started with them, or are only one's own.
OWN_SETTINGS = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "group.initial.rebalance.delay.ms",
        "listeners",
        "log.dirs",
        "node.id",
        "offsets.topic.replication.factor",
        "process.roles",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    }
)


@dataclass
class Session:
    """One broker under test and what was learned from its answers."""

    client: ProtocolClient
    topic_ids: dict[str, bytes] = field(default_factory=dict)

    def topic_id(self, name: str) -> bytes:
        """The id of a topic; asked for until the broker knows it."""
        deadline = time.monotonic() + 60
        while name not in self.topic_ids:
            topic = m.MetadataRequest.MetadataRequestTopic(name=name)
            found = self.client.call(m.MetadataRequest(topics=[topic], allow_auto_topic_creation=False), 12).topics[0]
            if found.error_code == 0:
                self.topic_ids[name] = found.topic_id
            assert time.monotonic() < deadline, f"{name} does not appear"
        return self.topic_ids[name]

    def produce(self, topic: str, partition: int, count: int, **producer: int) -> None:
        """Append `count` small records as one batch, as soon as the partition is served."""
        batch = build(0, -1, [Record(b"key", b"value")] * count, timestamp_ms=1_700_000_000_000, **producer)
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=batch)
        topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        deadline = time.monotonic() + 60
        while True:
            answer = self.client.call(m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), 9)
            error = answer.responses[0].partition_responses[0].error_code
            if error == 0:
                return
            assert time.monotonic() < deadline, f"produce to {topic}-{partition}: {ErrorCode(error).name}"
            time.sleep(0.05)


@dataclass(frozen=True)
class Step:
    """One request. `reads`: it changes nothing, so it may be repeated until an asynchronous broker has caught up."""

    name: str
    version: int
    request: Callable[[Session], m.Message]
    reads: bool = False


# --- what of an answer is compared ------------------------------------------------------------------------------------


def comparable(value: Any, name: str = "") -> Any:
    """A response as plain values, without what must differ: ids, times, texts, sizes, ports, order."""
    if isinstance(value, m.Struct):
        members = {slot: comparable(getattr(value, slot), slot) for slot in value.__slots__}
        if "is_sensitive" in members:
            return _comparable_config(members)
        if members.get("error_code"):
            members.pop("error_message", None)
        if isinstance(value, m.DescribeQuorumResponse.PartitionData):
            members["leader_epoch"] = "any"
        return members
    if isinstance(value, list):
        items = [comparable(item, name) for item in value]
        return items if name == "synonyms" else sorted((item for item in items if item is not None), key=repr)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if name in ("error_message", "documentation", "log_dir"):
        return "text" if value else value
    if name in ("topic_id", "replica_directory_id"):
        return "id" if any(value) else "no id"
    if name in ("total_bytes", "usable_bytes", "last_fetch_timestamp", "last_caught_up_timestamp", "partition_size"):
        return value if value <= 0 else "positive"
    if name in ("port", "cluster_id", "producer_id", "high_watermark", "log_end_offset"):
        return "given" if value not in ("", -1) else "none"
    return value


def _comparable_config(members: dict[str, Any]) -> dict[str, Any] | None:
    key = members["name"]
    if key.startswith("pybroker.") or key in OWN_SETTINGS:
        return None
    synonyms = members.get("synonyms") or []
    members["synonyms"] = [each for each in synonyms if each["name"] not in OWN_SETTINGS]
    return members


# --- the requests -----------------------------------------------------------------------------------------------------


def _always(request: m.Message) -> Callable[[Session], m.Message]:
    return lambda _: request


def _topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> m.CreateTopicsRequest.CreatableTopic:
    return m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assignments or {}).items()
        ],
        configs=[
            m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def _create(name: str, version: int, *topics: m.CreateTopicsRequest.CreatableTopic, validate: bool = False) -> Step:
    request = m.CreateTopicsRequest(topics=list(topics), timeout_ms=60_000, validate_only=validate)
    return Step(f"create: {name}", version, _always(request))


def create_topics() -> Iterator[Step]:
    for version in range(2, 8):
        yield _create(f"version {version}", version, _topic(f"v{version}", 2))
    yield _create("with configs", 7, _topic("configured", 2, retention_ms="1000", cleanup_policy="delete"))
    yield _create("compacted", 7, _topic("compacted", 1, cleanup_policy="compact"))
    yield _create("defaults", 7, _topic("defaults", -1, -1))
    yield _create("assigned", 7, _topic("assigned", -1, -1, {0: [1], 1: [1], 2: [1]}))
    yield _create("validate only", 7, _topic("only-validated", 3), validate=True)
    yield _create("validate only, exists", 7, _topic("v7"), validate=True)
    yield _create("nothing", 7)
    yield _create("exists", 7, _topic("v7"))
    yield _create("twice", 7, _topic("twice"), _topic("twice", 2))
    yield _create("bad names", 7, *(_topic(each) for each in ("", ".", "..", "a b", "x" * 250, "a/b", "ü")))
    yield _create("metadata topic", 7, _topic("__cluster_metadata"))
    yield _create("collision", 7, _topic("with.dot"))
    yield _create("collides", 7, _topic("with_dot"))
    yield _create("no partitions", 7, _topic("p0", 0), _topic("p-2", -2))
    yield _create("no replicas", 7, _topic("r0", 1, 0), _topic("r-2", 1, -2), _topic("r2", 1, 2))
    yield _create("unknown config", 7, _topic("bad1", 1, 1, no_such_key="1"))
    yield _create("bad config", 7, _topic("bad2", 1, 1, retention_ms="soon"))
    yield _create("null config", 7, _topic("bad3", 1, 1, retention_ms=None))
    yield _create("lag", 7, _topic("bad4", 1, 1, min_compaction_lag_ms="10", max_compaction_lag_ms="5"))
    yield _create(
        "empty elements",
        7,
        *(_topic(f"empty{n}", 1, 1, cleanup_policy=each) for n, each in enumerate(("", ",", "delete,"))),
    )
    yield _create("gap", 7, _topic("bad5", -1, -1, {0: [1], 2: [1]}))
    yield _create("unknown broker", 7, _topic("bad6", -1, -1, {0: [77]}))
    yield _create("broker twice", 7, _topic("bad7", -1, -1, {0: [1, 1]}))
    yield _create("empty replicas", 7, _topic("bad8", -1, -1, {0: []}))
    yield _create("both ways", 7, _topic("bad9", 2, -1, {0: [1]}))
    yield _create("good and bad", 7, _topic("mixed"), _topic("bad!"), _topic("v2"))
    yield _create("too many partitions", 7, _topic("huge", 10_001))


def create_partitions() -> Iterator[Step]:
    def step(name: str, *topics: tuple[str, int, list[list[int]] | None], version: int = 3, only: bool = False) -> Step:
        wanted = [
            m.CreatePartitionsRequest.CreatePartitionsTopic(
                name=topic,
                count=count,
                assignments=None
                if replicas is None
                else [m.CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=each) for each in replicas],
            )
            for topic, count, replicas in topics
        ]
        request = m.CreatePartitionsRequest(topics=wanted, timeout_ms=60_000, validate_only=only)
        return Step(f"partitions: {name}", version, _always(request))

    for version in range(4):
        yield step(f"version {version}", ("defaults", 2 + version, None), version=version)
    yield step("validate only", ("v7", 9, None), only=True)
    yield step("fewer", ("v7", 1, None))
    yield step("same", ("v7", 2, None))
    yield step("unknown", ("absent", 2, None))
    yield step("twice", ("v7", 3, None), ("v7", 4, None))
    yield step("assigned", ("v6", 3, [[1]]))
    yield step("too few assigned", ("v7", 4, [[1]]))
    yield step("unknown broker", ("v7", 3, [[9]]))
    yield step("too many replicas", ("v7", 3, [[1, 2]]))
    yield step("nothing")
    yield step("bad name", ("a b", 3, None))
    yield step("good and bad", ("v5", 4, None), ("absent", 4, None))


def describe_topics() -> Iterator[Step]:
    def step(name: str, topics: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Step:
        wanted = [m.DescribeTopicPartitionsRequest.TopicRequest(name=each) for each in topics]
        begin = None
        if cursor is not None:
            begin = m.DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        request = m.DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=limit, cursor=begin)
        return Step(f"describe: {name}", 0, _always(request), reads=True)

    yield step("all", [])
    yield step("some", ["v7", "configured", "v7", "absent"])
    yield step("bad name", ["a b", "v7"])
    yield step("page", [], limit=3)
    yield step("page of one", ["v5", "v6", "v7"], limit=1)
    yield step("full page", ["v4", "v5"], limit=2)
    yield step("no limit", ["v5"], limit=0)
    yield step("negative limit", ["v5"], limit=-5)
    yield step("cursor", [], cursor=("v5", 1))
    yield step("cursor behind the topic", [], limit=4, cursor=("v5", 99))
    yield step("cursor on a topic that is gone", [], limit=4, cursor=("v55", 1))
    yield step("cursor in the list", ["v4", "v5", "v6"], cursor=("v5", 1))
    yield step("cursor outside of the list", ["v4", "v6"], cursor=("v5", 1))
    yield step("negative cursor", ["v5"], cursor=("v5", -1))
    yield step("negative cursor on all", [], cursor=("v5", -1))


def alter_incrementally() -> Iterator[Step]:
    def step(
        name: str, *resources: tuple[int, str, list[tuple[str, int, str | None]]], version: int = 1, only: bool = False
    ) -> Step:
        request = m.IncrementalAlterConfigsRequest(
            resources=[
                m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=resource,
                    configs=[
                        m.IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=what, value=value)
                        for key, what, value in edits
                    ],
                )
                for kind, resource, edits in resources
            ],
            validate_only=only,
        )
        return Step(f"alter: {name}", version, _always(request))

    def topic(name: str, edits: list[tuple[str, int, str | None]], **options: Any) -> Step:
        return step(name, (TOPIC, "v7", edits), **options)

    yield topic("set", [("retention.ms", 0, "5000"), ("max.message.bytes", 0, "2000")], version=0)
    yield topic("append", [("cleanup.policy", 2, "compact")])
    yield topic("subtract", [("cleanup.policy", 3, "compact")])
    yield topic("delete", [("retention.ms", 1, None)])
    yield topic("delete what is not set", [("segment.ms", 1, None)])
    yield topic("append to a number", [("segment.ms", 2, "5")])
    yield topic("bad value", [("segment.ms", 0, "-3")])
    yield topic("unknown key", [("no.such.key", 0, "1")])
    yield topic("null value", [("segment.ms", 0, None)])
    yield topic("key twice", [("segment.ms", 0, "10000"), ("segment.ms", 0, "20000")])
    yield topic("validate only", [("segment.ms", 0, "60000")], only=True)
    yield topic("validate only, bad", [("segment.ms", 0, "x")], only=True)
    yield step("topics without a name", (TOPIC, "", [("segment.ms", 0, "60000")]))
    yield step("bad topic name", (TOPIC, "a b", [("segment.ms", 0, "60000")]))
    yield step("unknown topic", (TOPIC, "absent", [("segment.ms", 0, "60000")]))
    yield step("resource twice", *[(TOPIC, "v7", [("segment.ms", 0, "60000")])] * 2)
    yield step("unknown type", (3, "x", [("segment.ms", 0, "60000")]))
    yield step("this broker", (BROKER, str(NODE_ID), [("log.cleaner.threads", 0, "2")]))
    yield step("all brokers", (BROKER, "", [("message.max.bytes", 0, "900000")]))
    yield step("another broker", (BROKER, "5", [("log.cleaner.threads", 0, "2")]))
    yield step("broker by a word", (BROKER, "one", [("log.cleaner.threads", 0, "2")]))
    yield step("read-only key", (BROKER, str(NODE_ID), [("node.id", 0, "2")]))
    yield step("bad broker value", (BROKER, str(NODE_ID), [("log.cleaner.threads", 0, "x")]))
    yield step("per-broker key for all", (BROKER, "", [("cordoned.log.dirs", 0, "*")]))
    yield step("good and bad", (TOPIC, "v6", [("retention.ms", 0, "7")]), (TOPIC, "v5", [("retention.ms", 0, "x")]))
    yield step("nothing")


def replace_configs() -> Iterator[Step]:
    def step(name: str, *resources: tuple[int, str, dict[str, str | None]], version: int = 2) -> Step:
        request = m.AlterConfigsRequest(
            resources=[
                m.AlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=resource,
                    configs=[
                        m.AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in all.items()
                    ],
                )
                for kind, resource, all in resources
            ]
        )
        return Step(f"replace: {name}", version, _always(request))

    for version in range(3):
        yield step(f"version {version}", (TOPIC, "v2", {"retention.ms": f"{version}000"}), version=version)
    yield step("with other keys", (TOPIC, "v2", {"segment.ms": "60000"}))
    yield step("with nothing", (TOPIC, "v3", {}))
    yield step("bad value", (TOPIC, "v2", {"segment.ms": "x"}))
    yield step("null value", (TOPIC, "v2", {"segment.ms": None}))
    yield step("unknown topic", (TOPIC, "absent", {"segment.ms": "60000"}))
    yield step("all brokers", (BROKER, "", {"message.max.bytes": "800000", "min.insync.replicas": "1"}))
    yield step("another broker", (BROKER, "5", {"message.max.bytes": "800000"}))
    configs = [m.AlterConfigsRequest.AlterableConfig(name="segment.ms", value=each) for each in ("60000", "70000")]
    twice = m.AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name="v2", configs=configs)
    yield Step("replace: key twice", 2, _always(m.AlterConfigsRequest(resources=[twice])))


def describe_configs() -> Iterator[Step]:
    def step(name: str, *resources: tuple[int, str, list[str] | None], version: int = 4, synonyms: bool = True) -> Step:
        request = m.DescribeConfigsRequest(
            resources=[
                m.DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=kind, resource_name=resource, configuration_keys=keys
                )
                for kind, resource, keys in resources
            ],
            include_synonyms=synonyms,
            include_documentation=version >= 3,
        )
        return Step(f"configs: {name}", version, _always(request), reads=True)

    for version in range(1, 5):
        yield step(f"topic, version {version}", (TOPIC, "v7", ["retention.ms", "max.message.bytes"]), version=version)
    yield step("all of a topic", (TOPIC, "v7", None))
    yield step("all of a topic, empty list", (TOPIC, "v2", []))
    yield step("all of a topic without synonyms", (TOPIC, "configured", None), synonyms=False)
    yield step("unknown key", (TOPIC, "v7", ["no.such.key"]))
    yield step("topics by bad names", (TOPIC, "absent", None), (TOPIC, "a b", None), (TOPIC, "", None))
    yield step("all of this broker", (BROKER, str(NODE_ID), None))
    yield step("some of this broker", (BROKER, str(NODE_ID), ["log.cleaner.threads", "message.max.bytes"]))
    yield step("all brokers", (BROKER, "", None))
    yield step("other brokers", (BROKER, "5", None), (BROKER, "one", None))
    yield step("unknown type", (3, "x", None), (TOPIC, "v7", None))
    yield step("nothing")


def records() -> Iterator[Step]:
    def producing(request: m.Message, **appends: int) -> Callable[[Session], m.Message]:
        def make(session: Session) -> m.Message:
            for topic, count in appends.items():
                session.produce(topic, 0, count)
            return request

        return make

    def delete(*partitions: tuple[str, int, int]) -> m.DeleteRecordsRequest:
        return m.DeleteRecordsRequest(
            topics=[
                m.DeleteRecordsRequest.DeleteRecordsTopic(
                    name=topic,
                    partitions=[m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)],
                )
                for topic, index, offset in partitions
            ],
            timeout_ms=60_000,
        )

    for version in range(3):
        request = producing(delete(("v4", 0, 2 * version + 1)), v4=10)
        yield Step(f"records: version {version}", version, request)
    yield Step("records: below the start", 2, _always(delete(("v4", 0, 1))))
    yield Step("records: to the high watermark", 2, _always(delete(("v4", 0, -1))))
    yield Step("records: beyond the end", 2, _always(delete(("v4", 0, 99))))
    yield Step("records: negative", 2, _always(delete(("v4", 0, -2))))
    yield Step("records: empty partition", 2, producing(delete(("v4", 1, 0)), v4=1))
    yield Step("records: unknown", 2, _always(delete(("absent", 0, 0), ("v5", 77, 0))))
    yield Step("records: compacted", 2, producing(delete(("compacted", 0, 1)), compacted=3))
    yield Step("records: nothing", 2, _always(delete()))
    internal = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
    yield Step("records: internal topics that are not there", 2, _always(delete(*((name, 0, 0) for name in internal))))
    no_partitions = m.DeleteRecordsRequest(topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name="v4")])
    yield Step("records: no partitions", 2, _always(no_partitions))
    for version in range(2, 5):
        for epoch in (0, 1, 5, -1):
            yield Step(f"epoch {epoch}, version {version}", version, _always(_epoch("v4", 0, epoch)), reads=True)
    yield Step("epoch: of an empty log", 4, _always(_epoch("v5", 1, 0)), reads=True)
    yield Step("epoch: unknown partition", 4, _always(_epoch("v5", 77, 0)), reads=True)
    yield Step("epoch: unknown topic", 4, _always(_epoch("absent", 0, 0)), reads=True)
    yield Step("epoch: client is behind", 4, _always(_epoch("v4", 0, 0, current=0)), reads=True)
    yield Step("epoch: client is ahead", 4, _always(_epoch("v4", 0, 0, current=9)), reads=True)
    yield Step("epoch: client knows of none that there is", 4, _always(_epoch("v4", 0, 0, current=-7)), reads=True)


def _epoch(topic: str, partition: int, epoch: int, current: int = -1) -> m.OffsetForLeaderEpochRequest:
    asked = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    topics = [m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    return m.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def positions() -> Iterator[Step]:
    """What clients that resume at a committed offset ask: a wrong answer sends them back to the first record."""

    def fetch(name: str, partition: int, offset: int, current: int = -1, fetched: int = -1, appends: int = 0) -> Step:
        def make(session: Session) -> m.Message:
            # Each is more than half a segment.
            for _ in range(appends):
                session.produce("positions", partition, 40_000)
            asked = m.FetchRequest.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=100,
                current_leader_epoch=current,
                last_fetched_epoch=fetched,
            )
            topics = [m.FetchRequest.FetchTopic(topic="positions", partitions=[asked])]
            return m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=100, topics=topics)

        return Step(f"position: {name}", 12, make, reads=appends == 0)

    def epoch(name: str, partition: int, wanted: int, current: int) -> Step:
        return Step(f"position: {name}", 4, _always(_epoch("positions", partition, wanted, current)), reads=True)

    topic = m.CreateTopicsRequest.CreatableTopic(
        name="positions",
        num_partitions=2,
        replication_factor=1,
        configs=[m.CreateTopicsRequest.CreatableTopicConfig(name="segment.bytes", value=str(1 << 20))],
    )
    yield Step("position: topic", 7, _always(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)))
    for at, partition, end, appends in (("in an empty log", 0, 0, 0), ("behind a roll", 1, 120_000, 3)):
        yield fetch(f"end {at}", partition, end, appends=appends)
        yield fetch(f"one above the end {at}", partition, end + 1)
        yield fetch(f"negative {at}", partition, -1)
        for current in (0, 1):
            for wanted in (-1, 0, 1):
                yield epoch(f"epoch {wanted}, current {current}, {at}", partition, wanted, current)
                yield fetch(f"end, fetched {wanted}, current {current}, {at}", partition, end, current, wanted)
        yield fetch(f"above the end of its epoch {at}", partition, end + 1, 0, 0)
    yield fetch("the last record", 1, 119_999, 0, 0)


def producers() -> Iterator[Step]:
    def init(name: str, version: int, **fields: Any) -> Step:
        request = m.InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})
        # Kafka refuses while it fetches its first block of ids.
        return Step(f"producer id: {name}", version, _always(request), reads=True)

    def describing(session: Session) -> m.Message:
        session.produce("v6", 0, 3, producer_id=4711, producer_epoch=2, base_sequence=0)
        topic = m.DescribeProducersRequest.TopicRequest
        return m.DescribeProducersRequest(
            topics=[
                topic(name="v6", partition_indexes=[0, 1, 77]),
                topic(name="absent", partition_indexes=[0]),
                topic(name="a b", partition_indexes=[0]),
            ]
        )

    for version in range(6):
        yield init(f"version {version}", version)
    yield init("known id", 5, producer_id=5, producer_epoch=0)
    yield init("id without epoch", 5, producer_id=5)
    yield init("epoch without id", 5, producer_epoch=5)
    yield init("empty transactional id", 5, transactional_id="")
    yield Step("producers", 0, describing)


def cluster() -> Iterator[Step]:
    def log_dirs(version: int, *topics: tuple[str, list[int]], everything: bool = False) -> m.Message:
        wanted = [m.DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=all) for name, all in topics]
        return m.DescribeLogDirsRequest(topics=None if everything else wanted)

    def moves(*wanted: tuple[str, str, list[int]]) -> m.Message:
        topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
        dirs = [
            m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[topic(name=name, partitions=indexes)])
            for path, name, indexes in wanted
        ]
        return m.AlterReplicaLogDirsRequest(dirs=dirs)

    for version in range(3):
        request: m.Message = m.DescribeClusterRequest(include_cluster_authorized_operations=True)
        yield Step(f"cluster: version {version}", version, _always(request), reads=True)
    yield Step("cluster: plain", 2, _always(m.DescribeClusterRequest(include_fenced_brokers=True)), reads=True)
    for kind in (0, 2, 3):
        yield Step(f"cluster: type {kind}", 1, _always(m.DescribeClusterRequest(endpoint_type=kind)), reads=True)
    for version in range(1, 6):
        yield Step(f"log dirs: version {version}", version, _always(log_dirs(version, everything=True)), reads=True)
    request = log_dirs(5, ("v4", [0, 1, 77]), ("absent", [0]))
    yield Step("log dirs: some", 5, _always(request), reads=True)
    yield Step("log dirs: none", 5, _always(log_dirs(5)), reads=True)
    yield Step("moves: repeated", 2, _always(moves(("/nowhere", "v4", [0, 0]), ("/elsewhere", "v4", [0, 1]))))
    yield Step("moves: nowhere", 2, _always(moves(("/nowhere", "absent", [0]), ("/nowhere", "v4", [77]))))
    for kinds in ([], [TOPIC], [BROKER], [8], [16, 32], [1], [TOPIC, TOPIC]):
        request = m.ListConfigResourcesRequest(resource_types=kinds)
        yield Step(f"resources: {kinds}", 1, _always(request), reads=True)
    yield Step("resources: version 0", 0, _always(m.ListConfigResourcesRequest()), reads=True)
    for version in range(3):
        for name, index in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("v7", 0)):
            asked = m.DescribeQuorumRequest.PartitionData(partition_index=index)
            topics = [m.DescribeQuorumRequest.TopicData(topic_name=name, partitions=[asked])]
            request = m.DescribeQuorumRequest(topics=topics)
            yield Step(f"quorum: {name}-{index}, version {version}", version, _always(request), reads=True)
    yield Step("quorum: nothing", 2, _always(m.DescribeQuorumRequest()), reads=True)


def metadata() -> Iterator[Step]:
    def step(name: str, version: int, topics: list[str] | None, **options: bool) -> Step:
        wanted = None if topics is None else [m.MetadataRequest.MetadataRequestTopic(name=each) for each in topics]
        request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=version < 4, **options)
        return Step(f"metadata: {name}, version {version}", version, _always(request), reads=True)

    def by_id(*ids: bytes | str) -> Callable[[Session], m.Message]:
        topic = m.MetadataRequest.MetadataRequestTopic
        return lambda session: m.MetadataRequest(
            topics=[
                topic(topic_id=session.topic_id(each) if isinstance(each, str) else each, name=None) for each in ids
            ],
            allow_auto_topic_creation=False,
        )

    for version in range(14):
        yield step("all", version, None if version > 0 else [])
        yield step("some", version, ["v7", "configured", "v7"] + ["absent", "a b"] * (version >= 4))
    yield step("none", 13, [])
    yield step("operations", 10, ["v7"], include_topic_authorized_operations=True)
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    yield step("all operations", 9, ["v7"], **operations)
    yield Step("metadata: by id", 12, by_id("v7", bytes(15) + b"\x09"), reads=True)
    for version in (10, 11):
        yield Step(f"metadata: by id, version {version}", version, by_id("v7"), reads=True)
        yield Step(f"metadata: by unknown id, version {version}", version, by_id(bytes(15) + b"\x09"), reads=True)
        yield Step(f"metadata: by nothing, version {version}", version, by_id(bytes(16)), reads=True)


def list_offsets() -> Iterator[Step]:
    def step(name: str, version: int, topic: str, index: int, timestamp: int, **fields: int) -> Step:
        isolation = fields.pop("isolation", 0)
        wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp, **fields)
        topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])]
        request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        return Step(f"offset: {name}, version {version}", version, _always(request), reads=True)

    for version in range(1, 12):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_000, 1_700_000_000_001):
            yield step(f"at {timestamp}", version, "v6", 0, timestamp)
        yield step("in an empty log", version, "v5", 1, 0)
        yield step("latest of an empty log", version, "v5", 1, -1)
        yield step("of largest timestamp in an empty log", version, "v5", 1, -3)
    for timestamp in (-1, -2, 0):
        yield step(f"at {timestamp} after deletion", 11, "v4", 0, timestamp)
        yield step(f"at {timestamp}, committed", 11, "v6", 0, timestamp, isolation=1)
        yield step(f"at {timestamp}, unknown partition", 11, "v6", 77, timestamp)
        yield step(f"at {timestamp}, unknown topic", 11, "absent", 0, timestamp)
        yield step(f"at {timestamp}, client is ahead", 11, "v6", 0, timestamp, current_leader_epoch=9)


def delete_topics() -> Iterator[Step]:
    def by_id(*names: str) -> Callable[[Session], m.Message]:
        state = m.DeleteTopicsRequest.DeleteTopicState
        return lambda session: m.DeleteTopicsRequest(
            topics=[state(name=None, topic_id=session.topic_id(name)) for name in names], timeout_ms=60_000
        )

    def states(*names: str) -> Callable[[Session], m.Message]:
        state = m.DeleteTopicsRequest.DeleteTopicState
        return _always(m.DeleteTopicsRequest(topics=[state(name=name) for name in names], timeout_ms=60_000))

    for version in range(1, 6):
        request = m.DeleteTopicsRequest(topic_names=[f"v{version + 1}", "absent"], timeout_ms=60_000)
        yield Step(f"delete: version {version}", version, _always(request))
    yield Step("delete: by id", 6, by_id("v7"))
    yield Step("delete: by name", 6, states("configured", "absent", "a b", ""))
    yield Step("delete: twice", 6, states("defaults", "defaults"))
    both = m.DeleteTopicsRequest.DeleteTopicState(name="defaults", topic_id=bytes(15) + b"\x09")
    neither = m.DeleteTopicsRequest.DeleteTopicState(name=None)
    unknown = m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=bytes(15) + b"\x09")
    for name, state in (("name and id", both), ("neither", neither), ("unknown id", unknown)):
        yield Step(f"delete: {name}", 6, _always(m.DeleteTopicsRequest(topics=[state], timeout_ms=60_000)))
    yield Step("delete: nothing", 6, _always(m.DeleteTopicsRequest(timeout_ms=60_000)))


def script() -> Iterator[Step]:
    """All steps, in their order."""
    yield from create_topics()
    yield from create_partitions()
    yield from describe_topics()
    yield from alter_incrementally()
    yield from replace_configs()
    yield from describe_configs()
    yield from records()
    yield from positions()
    yield from producers()
    yield from metadata()
    yield from list_offsets()
    yield from cluster()
    yield from delete_topics()
    yield from describe_topics()
