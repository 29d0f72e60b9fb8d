"""Every setting of Kafka's, asked of an Apache Kafka and of this broker alike: what may be changed while it runs, what
is refused and with which error, what is then described, and what is left of it after a restart.

One Apache Kafka and one broker for the module; nothing depends on how fast they are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pybroker.client import configs
from pybroker.client.cluster import Cluster
from pybroker.client.configs import Resource, ResourceType
from pybroker.client.errors import RequestError
from pybroker.config.support import REFUSALS
from pybroker.protocol import messages as m
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KAFKA_VERSION, KafkaBroker

FACTS_FILE = Path(__file__).parents[2] / f"unit/config/data/kafka-{KAFKA_VERSION}-keys.jsonl"
FACTS: list[dict[str, Any]] = [json.loads(line) for line in FACTS_FILE.read_text().splitlines()]
TOPIC = ResourceType.TOPIC, "t"
BROKER = ResourceType.BROKER, "1"
DEFAULTS = ResourceType.BROKER, ""

#: Changed for good, in this order, and looked at again after a restart.
CHANGES: tuple[tuple[Resource, str, str | None], ...] = (
    (TOPIC, "retention.ms", "7777"),
    (TOPIC, "retention.ms", "soon"),
    (TOPIC, "cleanup.policy", "compact,delete"),
    (TOPIC, "cleanup.policy", None),
    (DEFAULTS, "log.retention.ms", "50000"),
    (DEFAULTS, "message.max.bytes", "900000"),
    (BROKER, "message.max.bytes", "800000"),
    (BROKER, "log.cleaner.threads", "2"),
    (BROKER, "log.cleaner.threads", "9"),
    (BROKER, "max.connections", "1000"),
    (BROKER, "max.connections.per.ip", "900"),
    (BROKER, "num.io.threads", "9"),
    (BROKER, "node.id", "7"),
    (BROKER, "nobody.knows.it", "1"),
    (DEFAULTS, "log.segment.bytes", "1"),
    (DEFAULTS, "log.cleanup.policy", "compact"),
    (DEFAULTS, "compression.type", "zstd"),
    (DEFAULTS, "compression.type", None),
)

#: A class that Kafka has to find when the setting changes; here none is loaded, and the setting has no effect.
CLASSES = {"metric.reporters", "principal.builder.class", "ssl.engine.factory.class"}

Asked = tuple[Resource, str, str]
Broker = BrokerProcess | KafkaBroker
#: Resource and key → value, and name, value and source of each layer.
Described = dict[tuple[Resource, str], tuple[str | None, list[tuple[str, str | None, str]]]]


def cases() -> Iterator[Asked]:
    """For each key up to two values that Kafka's type and bounds let through, and one that they do not."""
    for fact in FACTS:
        good = [text for text, value in fact["probes"].items() if value not in (None, "", fact["default"])]
        bad = [text for text, value in fact["probes"].items() if value is None]
        resources = [TOPIC] if fact["table"] == "topic" else [BROKER, DEFAULTS]
        for text in good[:2] + bad[:1] or ["org.example.Class"]:
            yield from ((resource, fact["name"], text) for resource in resources)
    yield from ((TOPIC, name, "1") for name in ("message.format.version", "nobody.knows.it"))


def cluster_of(broker: Broker) -> Cluster:
    host, _, port = broker.bootstrap.rpartition(":")
    return Cluster([(host, int(port))])


def alter(cluster: Cluster, resource: Resource, key: str, text: str | None, *, validate_only: bool = False) -> str:
    """The error's name, or OK."""
    values, delete = ({}, [key]) if text is None else ({key: text}, [])
    try:
        configs.alter(cluster, resource, values=values, delete=delete, validate_only=validate_only)
    except RequestError as error:
        return error.code.name
    return "OK"


def described(cluster: Cluster) -> Described:
    """What was set dynamically: the value, and the layers that were set dynamically with it."""
    found = {}
    for resource, settings in configs.describe(cluster, [TOPIC, BROKER, DEFAULTS]).items():
        for each in settings:
            layers = [(one.name, one.value, one.source.name) for one in each.synonyms if "DYNAMIC" in one.source.name]
            if "DYNAMIC" in each.source.name:
                found[resource, each.name] = (each.value, layers)
    return found


def settled(cluster: Cluster, expected: Described) -> Described:
    """What is described, once it is as expected or a minute is over: a Kafka answers before its brokers follow."""
    deadline = time.monotonic() + 60
    while (found := described(cluster)) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def make_topic(cluster: Cluster) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    response = cluster.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert response.topics[0].error_code == 0
    cluster.retry(lambda: configs.describe(cluster, [TOPIC]))


def restart(broker: Broker) -> None:
    broker.stop()
    broker.start()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, KafkaBroker]]:
    with (
        BrokerProcess(tmp_path_factory.mktemp("ours"), overrides={"node.id": "1"}) as ours,
        KafkaBroker(tmp_path_factory.mktemp("kafka"), node_id=1) as kafka,
    ):
        for broker in (ours, kafka):
            with cluster_of(broker) as cluster:
                make_topic(cluster)
        yield ours, kafka


def test_every_setting_is_accepted_or_refused_as_kafka_does(both: tuple[BrokerProcess, KafkaBroker]) -> None:
    answers: list[dict[Asked, str]] = []
    for broker in both:
        with cluster_of(broker) as cluster:
            answers.append({case: alter(cluster, *case, validate_only=True) for case in cases()})
    ours, kafkas = answers
    different = {case: (ours[case], kafkas[case]) for case in ours if ours[case] != kafkas[case]}
    by_key = {key: {answer for case, answer in different.items() if case[1] == key} for _, key, _ in different}
    for key in CLASSES:
        assert by_key.pop(key, {("OK", "INVALID_REQUEST")}) == {("OK", "INVALID_REQUEST")}, key
    for key in REFUSALS:
        assert by_key.pop(key, {("INVALID_REQUEST", "OK")}) == {("INVALID_REQUEST", "OK")}, key
    assert by_key == {}
    assert len(ours) > 2000
    assert set(ours.values()) == {"OK", "INVALID_CONFIG", "INVALID_REQUEST"}


def test_changes_are_described_alike_and_outlive_a_restart(both: tuple[BrokerProcess, KafkaBroker]) -> None:
    ours, kafka = both
    with cluster_of(ours) as cluster:
        results = [alter(cluster, *change) for change in CHANGES]
        expected = described(cluster)
    assert set(results) == {"OK", "INVALID_CONFIG", "INVALID_REQUEST"}
    assert expected[BROKER, "max.connections"][0] == "1000"
    with cluster_of(kafka) as cluster:
        assert [alter(cluster, *change) for change in CHANGES] == results
        assert settled(cluster, expected) == expected
    for broker in both:
        restart(broker)
        with cluster_of(broker) as cluster:
            assert settled(cluster, expected) == expected
