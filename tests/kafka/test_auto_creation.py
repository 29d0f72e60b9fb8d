"""Work that Apache Kafka starts and does not wait for: topics that clients use, the topic of groups, producer ids.

The same bytes go to Apache Kafka and to this broker. The first answers are the same, and so are the last ones.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from admin_script import NODE_ID, comparable
from tool_process import Tools

from pybroker.cluster.local_cluster import LocalCluster
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.cluster.fixtures import cluster_fixture
from tests.harness.kafka import KafkaBroker

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)

PATIENCE_S = 60.0
OK, UNKNOWN, INVALID = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
CLIENT_ID = "client-under-test"

cluster = cluster_fixture(scope="module", brokers=1, jvm_brokers=1, overrides={"offsets.topic.num.partitions": "5"})


class Case(NamedTuple):
    """Topics to ask for, what each is answered with at once, and in the end."""

    topics: dict[str, tuple[ErrorCode, ErrorCode]]
    version: int = 9
    may_create: bool = True

    @property
    def request(self) -> m.MetadataRequest:
        topics = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in self.topics]
        return m.MetadataRequest(topics=topics, allow_auto_topic_creation=self.may_create)

    @property
    def first(self) -> dict[str, ErrorCode]:
        return {name: first for name, (first, _) in self.topics.items()}

    @property
    def last(self) -> dict[str, ErrorCode]:
        return {name: last for name, (_, last) in self.topics.items()}


NEW, NEVER, BAD = (UNKNOWN, OK), (UNKNOWN, UNKNOWN), (INVALID, INVALID)
CASES = [
    *(Case({f"version-{version}": NEW}, version) for version in range(14)),
    Case({"version-1": (OK, OK), "new": NEW, "a b": BAD, "": BAD, "..": BAD, "x" * 250: BAD, "x" * 249: NEW}),
    Case({"with.dot": NEW}),
    Case({"with_dot": NEVER, "new": (OK, OK)}),
    Case({"__cluster_metadata": NEVER}),
    Case({"unwanted": NEVER, "a b": BAD, "new": (OK, OK)}, may_create=False),
    Case({"__consumer_offsets": NEW}),
]


def codes(answer: m.MetadataResponse) -> dict[str, ErrorCode]:
    return {each.name: ErrorCode(each.error_code) for each in answer.topics}


def until_last(client: ProtocolClient, case: Case) -> m.MetadataResponse:
    """The first answer that is the last one."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = client.call(case.request, case.version)
        if codes(answer) == case.last:
            return answer
        assert time.monotonic() < deadline, codes(answer)
        time.sleep(0.02)


def normal(answer: Any) -> Any:
    return comparable(answer)


@contextmanager
def both(**overrides: str) -> Iterator[tuple[ProtocolClient, ProtocolClient]]:
    """Clients of this broker and of Apache Kafka, both new."""
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    with (
        KafkaBroker(node_id=NODE_ID, overrides=settings) as kafka,
        BrokerProcess(overrides={"node.id": str(NODE_ID), **settings}) as broker,
        ProtocolClient(broker.port, client_id=CLIENT_ID) as own_client,
        ProtocolClient(kafka.port, client_id=CLIENT_ID) as kafka_client,
    ):
        yield own_client, kafka_client


def check(clients: tuple[ProtocolClient, ProtocolClient], case: Case) -> None:
    answers = [client.call(case.request, case.version) for client in clients]
    assert [codes(each) for each in answers] == [case.first] * 2
    assert normal(answers[0]) == normal(answers[1])
    answers = [until_last(client, case) for client in clients]
    assert normal(answers[0]) == normal(answers[1])


def test_answers_at_once_and_in_the_end() -> None:
    with both(offsets_topic_num_partitions="5") as clients:
        for case in CASES:
            check(clients, case)
        ids = m.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        firsts = [client.call(ids, 4) for client in clients]
        assert [each.error_code for each in firsts] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
        assert firsts[0] == firsts[1]
        for client in clients:
            deadline = time.monotonic() + PATIENCE_S
            while client.call(ids, 4).error_code:
                assert time.monotonic() < deadline


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_the_first_to_look_for_a_group(version: int) -> None:
    request = m.FindCoordinatorRequest(**({"key": "g"} if version < 4 else {"coordinator_keys": ["g", "h"]}))

    def errors(answer: Any) -> list[int]:
        return [each.error_code for each in (answer.coordinators if version >= 4 else [answer])]

    # Whether clients may make topics or not.
    with both(auto_create_topics_enable="false" if version == 0 else "true") as clients:
        for client in clients:
            assert set(errors(client.call(request, version))) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        for client in clients:
            deadline = time.monotonic() + PATIENCE_S
            while set(errors(client.call(request, version))) != {ErrorCode.NONE}:
                assert time.monotonic() < deadline


def test_where_nothing_can_be_made() -> None:
    with both(auto_create_topics_enable="false") as clients:
        check(clients, Case({"new": NEVER, "a b": BAD, "__consumer_offsets": NEVER}))
        check(clients, Case({"new": NEVER, "a b": BAD}, version=0))
    with both(default_replication_factor="3") as clients:
        for _ in range(2):
            check(clients, Case({"new": NEVER, "a b": BAD}))
            time.sleep(0.5)


def test_the_quota_of_the_client_bounds_it() -> None:
    with both(controller_quota_window_num="2") as clients:
        kind = m.AlterClientQuotasRequest
        entity = kind.EntityData(entity_type="client-id", entity_name=CLIENT_ID)
        quota = kind.OpData(key="controller_mutation_rate", value=0.001)
        for client in clients:
            answer = client.call(kind(entries=[kind.EntryData(entity=[entity], ops=[quota])]), 1)
            assert [each.error_code for each in answer.entries] == [0]
        time.sleep(1)
        check(clients, Case({"first": NEW}))
        for client in clients:  # how far one creation may go over the quota differs by what was there before
            client.call(Case({"second": NEW}).request, 9)
        time.sleep(1)
        check(clients, Case({"third": NEVER}))
        time.sleep(1)
        check(clients, Case({"third": NEVER}))


def test_in_a_cluster_with_kafkas_controllers(cluster: LocalCluster) -> None:
    """Brokers of both kinds, asked for topics of their own."""
    for node in cluster.layout.brokers:
        name = f"of-{node.node_id}"
        with ProtocolClient(node.port) as client:
            for version in (1, 12):
                topics = {f"{name}-{version}": NEW, "a b": BAD, f"{name}.{version}-dot": NEW}
                case = Case(topics, version)
                assert codes(client.call(case.request, version)) == case.first
                assert {len(each.partitions) for each in until_last(client, case).topics} == {0, 1}
            collides = Case({f"{name}_1-dot": NEVER})
            for _ in range(2):
                assert codes(client.call(collides.request, 9)) == collides.first
                time.sleep(0.3)
    finder = m.FindCoordinatorRequest(coordinator_keys=["g"])
    node = cluster.layout.brokers[0]
    with ProtocolClient(node.port) as client:
        (first,) = client.call(finder, 4).coordinators
        assert (first.error_code, first.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_java_clients_begin(tmp_path: Path) -> None:
    """A producer to a new topic, which is idempotent, and a consumer of a new group."""
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\nthree\n")
    tools_of = "org.apache.kafka.tools."
    with BrokerProcess() as broker, closing(Tools(broker.bootstrap)) as tools:
        tools.run(f"{tools_of}ConsoleProducer", "--topic", "new", f"<{lines}")
        reading = ("--topic", "new", "--from-beginning", "--max-messages", "3", "--group", "new")
        found = tools.run(f"{tools_of}consumer.ConsoleConsumer", *reading)
        assert {"one", "two", "three"} <= set(found.split())
