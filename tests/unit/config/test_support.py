"""What becomes of each setting: every one has an answer, and every answer is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pybroker.config.alter import InvalidAlteration, check_new_topic
from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_keys import BROKER_KEYS, base_name, find_key
from pybroker.config.definition import ConfigError
from pybroker.config.keys.retired import PLUGIN_KEYS, RETIRED_KEYS, RETIRED_TOPIC_KEYS
from pybroker.config.support import REFUSALS, TOPIC_REFUSALS, Support, idle_entries, idle_entry, support_of
from pybroker.config.topic import TOPIC_KEYS

DATA = Path(__file__).parent / "data"
ALL_KEYS = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]


def test_every_key_is_supported_or_has_a_reason_why_not() -> None:
    for key in ALL_KEYS:
        standing = support_of(key)
        assert standing.support is Support.SUPPORTED or standing.reason.endswith("."), key.name
        assert (standing.support is Support.SUPPORTED) is key.honoured, key.name


def test_every_reason_is_that_of_a_key() -> None:
    idle = [key for key in ALL_KEYS if support_of(key).support is Support.NO_EFFECT]
    assert {idle_entry(key.name) for key in idle} == set(idle_entries())
    assert set(REFUSALS) <= set(BROKER_KEYS)
    assert set(TOPIC_REFUSALS) <= set(TOPIC_KEYS)


@pytest.mark.parametrize("name", list(REFUSALS))
def test_a_refused_key_keeps_the_broker_from_starting_unless_it_asks_for_nothing(name: str) -> None:
    accepted = REFUSALS[name].accepted
    BrokerConfig.load(None, [f"{name}={accepted}"])
    with pytest.raises(ConfigError, match=f"^--override: {name} cannot be ") as caught:
        BrokerConfig.load(None, [f"{name}={'true' if accepted else 'org.example.Policy'}"])
    assert REFUSALS[name].reason in str(caught.value)


def test_a_refused_topic_key_keeps_the_topic_from_being_made() -> None:
    broker = BrokerConfig.load(None)
    for name, refusal in TOPIC_REFUSALS.items():
        check_new_topic({name: refusal.accepted}, broker)
        with pytest.raises(InvalidAlteration, match=name):
            check_new_topic({name: "true"}, broker)


def test_a_key_of_one_listener_goes_by_its_base() -> None:
    name = "listener.name.out.scram-sha-256.sasl.jaas.config"
    assert base_name(name) == "sasl.jaas.config"
    assert base_name("num.partitions") == "num.partitions"
    assert base_name("listener.name.out.nope") == "listener.name.out.nope"
    found, of_all = find_key(name), find_key("listener.name.out.max.connections")
    assert found is not None and of_all is not None
    assert support_of(found) == support_of(BROKER_KEYS["sasl.jaas.config"])
    assert support_of(of_all).reason == "max.connections is the same for all listeners; one cannot have its own."


def test_retired_keys_are_those_that_older_kafkas_had_and_4_3_has_not() -> None:
    facts = [json.loads(line) for line in (DATA / "kafka-retired-keys.jsonl").read_text().splitlines()]
    assert {(fact["name"], fact["until"]) for fact in facts if fact["table"] == "broker"} == {
        (key.name, key.until) for key in RETIRED_KEYS.values()
    }
    assert {(fact["name"], fact["until"]) for fact in facts if fact["table"] == "topic"} == {
        (key.name, key.until) for key in RETIRED_TOPIC_KEYS.values()
    }
    assert not (set(RETIRED_KEYS) | set(PLUGIN_KEYS)) & set(BROKER_KEYS)
    assert not set(RETIRED_TOPIC_KEYS) & set(TOPIC_KEYS)


def test_what_replaces_a_retired_key_is_a_key_of_today() -> None:
    assert {name for key in RETIRED_KEYS.values() for name in key.replacements} <= set(BROKER_KEYS)
    assert {name for key in RETIRED_TOPIC_KEYS.values() for name in key.replacements} <= set(TOPIC_KEYS)
