"""The same requests to our configuration as to Apache Kafka itself, held against what it answered (data/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pybroker.config.alter import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    AlterOperation,
    Changes,
    ConfigAlteration,
    InvalidAlteration,
    alter_broker,
    alter_topic,
)
from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_keys import BROKER_KEYS
from pybroker.config.definition import ConfigType
from pybroker.config.describe import DescribedConfig, describe_broker, describe_default_broker, describe_topic
from pybroker.config.keys.own import OWN_KEYS
from pybroker.config.topic import TOPIC_KEYS
from pybroker.protocol.kafka_version import KAFKA_VERSION

DATA = Path(__file__).parent / "data"
OWN_NAMES = {key.name for key in OWN_KEYS}
ERRORS = {INVALID_CONFIG: "INVALID_CONFIG", INVALID_REQUEST: "INVALID_REQUEST"}
#: Once log.retention.ms or log.roll.ms is dynamic, Kafka shows its built-in hours as the value of the static key.
SHOWN_TRULY = {("broker", "log.retention.hours"), ("broker", "log.roll.hours")}

#: Kafka has no default for these, so it shows no layer for one.
OUR_DEFAULTS = {"node.id", "process.roles", "controller.listener.names"}

#: Kafka's default is every interface, ours is loopback: the layer of the default differs, and nothing else.
SAFER_DEFAULTS = {"listeners"}


class Overrides:
    """What the metadata log would hold: one dictionary per resource, changed by each request that is accepted."""

    def __init__(self) -> None:
        self.topic: dict[str, str] = {"segment.bytes": "3000000", "cleanup.policy": "compact,delete"}
        self.broker: dict[str, str] = {}
        # A cluster with eligible leader replicas (KIP-966) starts with this default.
        self.default: dict[str, str] = {"min.insync.replicas": "1"}
        self.static = BrokerConfig.load(DATA / "server.properties")

    @property
    def config(self) -> BrokerConfig:
        return self.static.with_dynamic(self.default, self.broker)

    def alter(self, resource: str, alteration: ConfigAlteration) -> str:
        present: dict[str, str] = getattr(self, resource)
        try:
            changes = self._changes(resource, present, alteration)
        except InvalidAlteration as error:
            return ERRORS[error.error_code]
        for name, text in changes.items():
            if text is None:
                del present[name]
            else:
                present[name] = text
        return "OK"

    def _changes(self, resource: str, present: dict[str, str], alteration: ConfigAlteration) -> Changes:
        if resource == "topic":
            return alter_topic(present, [alteration], self.config)
        return alter_broker(present, [alteration], self.config, per_broker=resource == "broker")


def alterations() -> list[tuple[str, str, ConfigAlteration]]:
    rows = [line.split("\t") for line in (DATA / f"kafka-{KAFKA_VERSION}-alterations.tsv").read_text().splitlines()]
    return [
        (result, resource, ConfigAlteration(name, AlterOperation[operation], None if value == "null" else value))
        for result, resource, operation, name, value in rows
    ]


def expected(resource: str) -> dict[str, list[Any]]:
    lines = (DATA / f"kafka-{KAFKA_VERSION}-described.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return {entry[1]: entry[2:] for entry in entries if entry[0] == resource}


def as_kafka(entry: DescribedConfig) -> list[Any]:
    kind = ConfigType(entry.type_id).name if entry.type_id else "UNKNOWN"
    synonyms = [[synonym.name, synonym.value, synonym.source.name] for synonym in entry.synonyms]
    return [entry.value, entry.source.name, entry.is_sensitive, entry.read_only, kind, synonyms]


def compare(resource: str, entries: list[DescribedConfig]) -> None:
    ours = {entry.name: as_kafka(entry) for entry in entries}
    for name, theirs in expected(resource).items():
        if (resource, name) in SHOWN_TRULY:
            # The value is that of the first layer, which both name.
            assert theirs[0] != theirs[-1][0][1]
            assert ours[name] == [theirs[-1][0][1], *theirs[1:]]
        else:
            if name in OUR_DEFAULTS:
                assert ours[name][-1].pop()[-1] == "DEFAULT"
            if name in SAFER_DEFAULTS:
                assert ours[name][-1].pop() != theirs[-1].pop()
            assert ours[name] == theirs, name


@pytest.fixture
def altered() -> Overrides:
    overrides = Overrides()
    for _, resource, alteration in alterations():
        overrides.alter(resource, alteration)
    return overrides


def test_the_same_alterations_are_accepted_and_refused() -> None:
    overrides = Overrides()
    rows = alterations()
    answers = [(overrides.alter(resource, alteration), resource, alteration) for _, resource, alteration in rows]
    assert answers == rows
    assert {result for result, _, _ in rows} == {"OK", "INVALID_CONFIG", "INVALID_REQUEST"}


def test_topic_and_broker_before_any_alteration() -> None:
    overrides = Overrides()
    compare("initial topic", describe_topic(overrides.topic, overrides.config))
    compare("initial broker", describe_broker(overrides.config))


def test_topic_after_the_alterations(altered: Overrides) -> None:
    compare("topic", describe_topic(altered.topic, altered.config))


def test_broker_after_the_alterations(altered: Overrides) -> None:
    compare("broker", describe_broker(altered.config))


def test_default_broker_after_the_alterations(altered: Overrides) -> None:
    entries = describe_default_broker(altered.config)
    compare("default", entries)
    assert {entry.name for entry in entries} == set(expected("default"))


def test_all_public_keys_are_shown_and_no_others() -> None:
    overrides = Overrides()
    shown = {entry.name for entry in describe_broker(overrides.config)} - OWN_NAMES
    public = {name for name, key in BROKER_KEYS.items() if not key.internal} - OWN_NAMES
    assert shown == public | {"some.unknown.key"}
    topic = {entry.name for entry in describe_topic({}, overrides.config)} - OWN_NAMES
    assert topic == {name for name, key in TOPIC_KEYS.items() if not key.internal} - OWN_NAMES
    # As many as Kafka shows: 350 keys of a broker and the unknown one, and 37 of a topic.
    assert (len(shown), len(topic)) == (351, 37)


def test_only_what_was_asked_for_is_described() -> None:
    config = Overrides().config
    assert [entry.name for entry in describe_topic({}, config, ["retention.ms", "nope"])] == ["retention.ms"]
    assert [entry.name for entry in describe_broker(config, ["node.id"])] == ["node.id"]
    assert describe_default_broker(config, ["node.id"]) == []
