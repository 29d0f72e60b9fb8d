"""Transactions that a broker of Apache Kafka coordinates, in partitions that are led here: what is written is verified
with the coordinator (KIP-890), and refused as a leader of Apache Kafka refuses it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.client import configs
from pybroker.client.cluster import Cluster
from pybroker.client.connection import Connection
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import Record
from tests.harness.cluster.fixtures import needs_kafka, running_cluster
from tests.harness.cluster.scenario import create_transaction_topic, wait_until_healthy
from tests.harness.waiting import until

OURS, KAFKAS = 1, 2
WAIT_SECONDS = 60.0
VERIFICATION = "transaction.partition.verification.enable"
#: Led by one broker each, which has them alone.
TOPICS = {"ours": OURS, "kafkas": KAFKAS}
PARTITIONS = 5
#: A broker that starts again waits for its last session to end.
_SESSION = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}

pytestmark = needs_kafka


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("transactions") / "cluster"
    with running_cluster(directory, brokers=1, jvm_brokers=1, overrides=_SESSION) as made:
        create_transaction_topic(made)
        admin = AdminClient({"bootstrap.servers": made.layout.bootstrap})
        topics = [
            NewTopic(name, PARTITIONS, replica_assignment=[[leader]] * PARTITIONS, config={"min.insync.replicas": "1"})
            for name, leader in TOPICS.items()
        ]
        for created in admin.create_topics(topics).values():
            created.result(WAIT_SECONDS)
        wait_until_healthy(made, at_least=list(TOPICS))
        yield made


class Zombie:
    """A transactional producer that does one step at a time, also those that it must not."""

    def __init__(self, cluster: LocalCluster, transactional_id: str) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = -1, -1

    def _ask(self, node_id: int, request: m.Message, version: int) -> m.Message:
        node = self._cluster.layout.node(node_id)
        with Connection(node.host, node.port, timeout_seconds=WAIT_SECONDS) as connection:
            answer: m.Message = connection.call(request, version)
            return answer

    def _coordinate(self, call: Callable[[], int]) -> None:
        """Again while the coordinator loads, or ends the transaction before."""
        until(lambda: call() == ErrorCode.NONE, "the coordinator does it")

    def begin(self) -> None:
        """InitProducerId: whoever was it before is fenced."""

        def ask() -> int:
            request = m.InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            )
            answer: m.InitProducerIdResponse = self._ask(KAFKAS, request, 4)
            if answer.error_code == ErrorCode.NONE:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return answer.error_code

        self._coordinate(ask)

    def add(self, topic: str, partition: int) -> None:
        """AddPartitionsToTxn, as a producer does before it writes."""

        def ask() -> int:
            request = m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[partition])
                ],
            )
            answer: m.AddPartitionsToTxnResponse = self._ask(KAFKAS, request, 3)
            code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return code

        self._coordinate(ask)

    def end(self, topic: str, partition: int, *, commit: bool) -> None:
        """EndTxn, as a producer does that knows version 4 at most, and until its marker is in the partition: before,
        what comes late is still of the transaction."""

        def ask() -> int:
            request = m.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            answer: m.EndTxnResponse = self._ask(KAFKAS, request, 3)
            return answer.error_code

        self._coordinate(ask)
        until(
            lambda: self._end_offset(topic, partition, committed=True) == self._end_offset(topic, partition),
            "the marker is there",
        )

    def _end_offset(self, topic: str, partition: int, *, committed: bool = False) -> int:
        """The high watermark, or the last stable offset."""
        rows = [m.ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)]
        request = m.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=rows)],
        )
        answer: m.ListOffsetsResponse = self._ask(TOPICS[topic], request, 7)
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    def write(self, topic: str, partition: int, sequence: int, version: int = 9) -> int:
        """One record; the error code. Again while the coordinator could not be asked."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (code := self.try_to_write(topic, partition, sequence, version)) == ErrorCode.NOT_ENOUGH_REPLICAS:
            assert time.monotonic() < deadline, "the coordinator cannot be asked"
            time.sleep(0.05)
        return code

    def try_to_write(self, topic: str, partition: int, sequence: int, version: int = 9) -> int:
        """The same, once."""
        batch = record_batch.build(
            0,
            -1,
            [Record(b"k", b"%s %d" % (self.transactional_id.encode(), sequence))],
            timestamp_ms=time.time_ns() // 1_000_000,
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        row = m.ProduceRequest.PartitionProduceData(index=partition, records=batch)
        data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[row])
        request = m.ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=60_000, topic_data=[data]
        )
        answer: m.ProduceResponse = self._ask(TOPICS[topic], request, version)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code


def read(cluster: LocalCluster, topic: str, partition: int) -> list[str]:
    """What a reader of committed records gets, up to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.layout.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    values: list[str] = []
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            assert time.monotonic() < deadline, f"{values} and no end"
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                return values
            values.append((message.value() or b"").decode())
    finally:
        consumer.close()


def test_a_client_commits_and_aborts(cluster: LocalCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.layout.bootstrap, "transactional.id": "client", "linger.ms": 0})
    producer.init_transactions(WAIT_SECONDS)
    for number, commit in enumerate([True, False, True, True, False]):
        producer.begin_transaction()
        for topic in TOPICS:
            for value in range(3):
                producer.produce(topic, f"{number} {value}", partition=0)
        if commit:
            producer.commit_transaction(WAIT_SECONDS)
        else:
            assert producer.flush(WAIT_SECONDS) == 0
            producer.abort_transaction(WAIT_SECONDS)
    expected = [f"{number} {value}" for number in (0, 2, 3) for value in range(3)]
    assert {topic: read(cluster, topic, 0) for topic in TOPICS} == dict.fromkeys(TOPICS, expected)


def story(cluster: LocalCluster, topic: str) -> list[tuple[str, int]]:
    """What a producer is told that does, among other things, what it must not."""
    told: list[tuple[str, int]] = []
    one = Zombie(cluster, f"story-{topic}")
    one.begin()
    told.append(("not added", one.write(topic, 1, 0)))
    told.append(("not added, by a producer that knows what to do", one.write(topic, 1, 0, version=11)))
    one.add(topic, 1)
    told.append(("added", one.write(topic, 1, 0)))
    told.append(("another one", one.write(topic, 1, 1)))
    told.append(("another partition", one.write(topic, 2, 0)))
    one.end(topic, 1, commit=False)
    told.append(("after its end", one.write(topic, 1, 2)))
    one.add(topic, 1)
    told.append(("in the next one", one.write(topic, 1, 2)))
    told.append(("again", one.write(topic, 1, 2)))
    one.end(topic, 1, commit=True)
    one.add(topic, 1)
    other = Zombie(cluster, one.transactional_id)
    other.begin()
    told.append(("as a zombie", one.write(topic, 1, 3)))
    told.append(("as a zombie elsewhere", one.write(topic, 2, 0)))
    other.add(topic, 1)
    told.append(("in the zombie's place", other.write(topic, 1, 0)))
    other.end(topic, 1, commit=True)
    told.append(("what was there before its end", other.write(topic, 1, 0)))
    other.add(topic, 1)
    told.append(("behind what was refused", other.write(topic, 1, 1)))
    return told


def test_what_must_not_be_written_is_refused_as_apache_kafka_refuses_it(cluster: LocalCluster) -> None:
    told = {topic: story(cluster, topic) for topic in TOPICS}
    assert told["ours"] == told["kafkas"]
    codes = dict(told["ours"])
    assert codes["not added"] == codes["after its end"] == codes["another partition"] == ErrorCode.INVALID_TXN_STATE
    assert codes["not added, by a producer that knows what to do"] == ErrorCode.TRANSACTION_ABORTABLE
    assert codes["as a zombie"] == codes["as a zombie elsewhere"] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert codes["behind what was refused"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert codes["added"] == codes["in the next one"] == codes["in the zombie's place"] == ErrorCode.NONE
    assert [read(cluster, topic, 1) for topic in TOPICS] == [
        [f"story-{topic} 2", f"story-{topic} 0"] for topic in TOPICS
    ]
    assert [read(cluster, topic, 2) for topic in TOPICS] == [[], []]


def set_verification(cluster: LocalCluster, value: str | None) -> None:
    """For all brokers; None: as by default."""
    node = cluster.layout.node(OURS)
    values, gone = ({}, [VERIFICATION]) if value is None else ({VERIFICATION: value}, [])
    with Cluster([(node.host, node.port)]) as client:
        configs.alter(client, (configs.ResourceType.BROKER, ""), values=values, delete=gone)


def test_whether_it_is_verified_changes_while_it_serves(cluster: LocalCluster) -> None:
    one = Zombie(cluster, "switch")
    one.begin()
    assert one.write("ours", 3, 0) == ErrorCode.INVALID_TXN_STATE
    set_verification(cluster, "false")
    deadline = time.monotonic() + WAIT_SECONDS
    while (code := one.write("ours", 3, 0)) != ErrorCode.NONE:
        assert code == ErrorCode.INVALID_TXN_STATE and time.monotonic() < deadline
        time.sleep(0.05)
    set_verification(cluster, None)
    for number in count():  # what is open is open: only another transaction can tell
        other = Zombie(cluster, f"switch back {number}")
        other.begin()
        code = other.write("ours", 3, 0)
        if code != ErrorCode.NONE:
            break
        assert time.monotonic() < deadline
    assert code == ErrorCode.INVALID_TXN_STATE


def test_it_waits_for_a_coordinator_that_was_away(cluster: LocalCluster) -> None:
    one = Zombie(cluster, "patient")
    one.begin()
    one.add("ours", 4)
    assert cluster.stop(KAFKAS) is not None
    assert one.try_to_write("ours", 4, 0) == ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.start(KAFKAS)
    wait_until_healthy(cluster)
    assert one.write("ours", 4, 0) == ErrorCode.NONE
    one.end("ours", 4, commit=True)
