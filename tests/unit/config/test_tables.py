"""pybroker's tables of configuration keys against what Apache Kafka's jars say (data/kafka-*-keys.jsonl)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pybroker
from pybroker.config.broker_keys import BROKER_KEYS
from pybroker.config.definition import ConfigError, ConfigKey, format_value
from pybroker.config.keys.own import DURABILITY, OWN_KEYS
from pybroker.config.keys.synonyms import SYNONYMS
from pybroker.config.topic import TOPIC_KEYS
from pybroker.protocol.kafka_version import KAFKA_VERSION

FACTS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / f"data/kafka-{KAFKA_VERSION}-keys.jsonl").read_text().splitlines()
]
OWN_NAMES = {key.name for key in OWN_KEYS}
#: Kafka demands a value; one process that keeps its own metadata needs none.
OUR_DEFAULTS = {"node.id": "1", "process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
#: Kafka listens on every interface, without a password.
SAFER_DEFAULTS = {"listeners": "PLAINTEXT://127.0.0.1:9092"}


def key_of(fact: dict[str, Any]) -> ConfigKey:
    return (TOPIC_KEYS if fact["table"] == "topic" else BROKER_KEYS)[fact["name"]]


def parsed(key: ConfigKey, text: str) -> str | None:
    try:
        return format_value(key.parse(text))
    except ConfigError:
        return None


def test_the_tables_have_kafkas_keys_and_ours_alone() -> None:
    assert len(FACTS) == 379 + 3 + 38
    assert set(BROKER_KEYS) - OWN_NAMES == {fact["name"] for fact in FACTS if fact["table"] != "topic"}
    assert set(TOPIC_KEYS) - OWN_NAMES == {fact["name"] for fact in FACTS if fact["table"] == "topic"}
    assert all(name.startswith("pybroker.") for name in OWN_NAMES)


@pytest.mark.parametrize("table", ["broker", "throttle", "topic"])
def test_type_default_importance_and_update_mode_are_kafkas(table: str) -> None:
    for fact in (fact for fact in FACTS if fact["table"] == table):
        key = key_of(fact)
        default = OUR_DEFAULTS[key.name] if fact["required"] else SAFER_DEFAULTS.get(key.name, fact["default"])
        assert (key.type.name, key.default, key.importance.name) == (fact["type"], default, fact["importance"]), (
            key.name
        )
        if table == "broker":
            assert (key.update_mode.value, key.internal) == (fact["mode"], fact["internal"]), key.name


def test_every_default_is_accepted_and_written_as_kafka_writes_it() -> None:
    for fact in FACTS:
        key = key_of(fact)
        if key.default is not None:
            assert format_value(key.default_value) == key.default, key.name


def test_the_same_texts_are_accepted_and_mean_the_same() -> None:
    wrong = [
        (fact["name"], text, expected, parsed(key_of(fact), text))
        for fact in FACTS
        for text, expected in fact["probes"].items()
        if parsed(key_of(fact), text) != expected
    ]
    assert wrong == []
    assert sum(len(fact["probes"]) for fact in FACTS) > 3000


@pytest.mark.parametrize("end", ["leader", "follower"])
def test_commas_that_break_apache_kafkas_brokers_are_refused(end: str) -> None:
    """4.4.0 takes all of these lists; its brokers then fail to apply those with an empty entry before another one."""
    key = TOPIC_KEYS[f"{end}.replication.throttled.replicas"]
    assert [parsed(key, text) for text in (",", "0:1,", "0:1,1:2,,")] == [",", "0:1,", "0:1,1:2,,"]
    assert [parsed(key, text) for text in (",0:1", "0:1,,1:2", "*,", ",*", "*,0:1")] == [None] * 5


def test_topic_synonyms_are_kafkas_in_kafkas_order() -> None:
    for fact in (fact for fact in FACTS if fact["table"] == "topic"):
        ours = [[synonym.name, str(synonym.factor)] for synonym in SYNONYMS.get(fact["name"], ())]
        assert ours == fact["synonyms"], fact["name"]


def test_a_topic_key_and_the_broker_keys_behind_it_have_an_effect_together() -> None:
    for name, synonyms in SYNONYMS.items():
        assert {BROKER_KEYS[synonym.name].honoured for synonym in synonyms} == {TOPIC_KEYS[name].honoured}, name


def test_a_key_that_has_an_effect_is_read_somewhere() -> None:
    package = Path(pybroker.__file__).parent
    files = [path for path in package.rglob("*.py") if path.parent.name != "keys" and "testing" not in path.parts]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    indirect = {synonym.name for synonyms in SYNONYMS.values() for synonym in synonyms} | {DURABILITY.name}
    names = [key.name for key in [*BROKER_KEYS.values(), *TOPIC_KEYS.values()] if key.honoured]
    assert [name for name in names if name not in indirect and f'"{name}"' not in source] == []


def test_every_key_has_a_sentence_of_documentation() -> None:
    for key in [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]:
        assert key.documentation.endswith("."), key.name
        assert len(key.documentation) < 220, key.name
