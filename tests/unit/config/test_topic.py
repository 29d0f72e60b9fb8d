"""TopicConfig: precedence of overrides and broker synonyms, durability, and the checks of alterations."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pybroker.config.alter import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    ConfigAlteration,
    InvalidAlteration,
    alter_broker,
    alter_topic,
    check_new_topic,
    replace_broker,
    replace_topic,
)
from pybroker.config.broker import BrokerConfig
from pybroker.config.describe import describe_topic
from pybroker.config.topic import TopicConfig

SET, DELETE, APPEND, SUBTRACT = range(4)


def topic(overrides: Mapping[str, str], *broker: str) -> TopicConfig:
    return TopicConfig.resolve(overrides, BrokerConfig.load(None, broker))


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ([], 604_800_000),
        (["log.retention.hours=2"], 7_200_000),
        (["log.retention.hours=2", "log.retention.minutes=3"], 180_000),
        (["log.retention.hours=2", "log.retention.minutes=3", "log.retention.ms=4"], 4),
        (["log.retention.hours=-1"], -1),
        (["log.retention.ms=-5"], -1),
    ],
)
def test_the_finer_unit_wins(broker: list[str], retention_ms: int) -> None:
    assert topic({}, *broker).get("retention.ms") == retention_ms
    assert topic({"retention.ms": "9"}, *broker).get("retention.ms") == 9


def test_roll_and_flush_follow_the_broker() -> None:
    config = topic({}, "log.roll.hours=1", "log.roll.jitter.hours=2", "log.flush.scheduler.interval.ms=5")
    assert (config.get("segment.ms"), config.get("segment.jitter.ms"), config.get("flush.ms")) == (3600000, 7200000, 5)
    config = topic(
        {}, "log.roll.hours=1", "log.roll.ms=2", "log.flush.interval.ms=3", "log.flush.scheduler.interval.ms=5"
    )
    assert (config.get("segment.ms"), config.get("flush.ms")) == (2, 3)


def test_dynamic_broker_values_reach_topics() -> None:
    broker = BrokerConfig.load(None).with_dynamic({"message.max.bytes": "7"}, {})
    assert TopicConfig.resolve({}, broker).get_int("max.message.bytes") == 7


def test_an_override_that_cannot_be_used_gives_way_to_the_broker() -> None:
    config = topic({"segment.bytes": "1"}, "log.segment.bytes=2097152")
    assert config.segment_bytes == 2097152
    assert config.warnings == (
        "Invalid value 1 for configuration segment.bytes; accepted: a whole number from 1048576 to 2147483647; "
        "the broker's value is used",
    )
    assert topic({"internal.segment.bytes": "100"}).segment_bytes == 100


@pytest.mark.parametrize(
    ("overrides", "broker", "mode"),
    [
        ({}, [], "none"),
        ({"flush.messages": "1"}, [], "acks"),
        ({"flush.messages": "2"}, [], "interval"),
        ({"flush.ms": "1000"}, [], "interval"),
        ({}, ["log.flush.scheduler.interval.ms=1000"], "interval"),
        ({}, ["log.flush.interval.messages=1"], "acks"),
        ({"flush.messages": "1"}, ["pybroker.durability=none"], "none"),
        ({"pybroker.durability": "auto", "flush.messages": "1"}, ["pybroker.durability=none"], "acks"),
        ({"pybroker.durability": "auto"}, ["pybroker.durability=acks"], "none"),
        ({"pybroker.durability": "interval", "flush.messages": "1"}, ["pybroker.durability=acks"], "interval"),
    ],
)
def test_durability(overrides: dict[str, str], broker: list[str], mode: str) -> None:
    assert topic(overrides, *broker).durability == mode


def test_cleanup_policy() -> None:
    assert (topic({}).compact, topic({}).delete) == (False, True)
    both = topic({"cleanup.policy": "compact, delete"})
    assert (both.compact, both.delete) == (True, True)
    for text in (",", "delete,", ",,"):
        assert topic({"cleanup.policy": text}).warnings, "an empty element is no empty list"
    assert not topic({"cleanup.policy": "delete,delete"}).warnings


def test_each_key_once_per_request() -> None:
    broker = BrokerConfig.load(None)
    twice = [ConfigAlteration("retention.ms", SET, "1"), ConfigAlteration("retention.ms", DELETE, None)]
    with pytest.raises(InvalidAlteration, match=r"retention.ms is altered twice") as caught:
        alter_topic({}, twice, broker)
    assert caught.value.error_code == INVALID_REQUEST
    with pytest.raises(InvalidAlteration, match=r"^Unknown operations type 9") as caught:
        alter_topic({}, [ConfigAlteration("retention.ms", 9, "1")], broker)
    assert caught.value.error_code == INVALID_REQUEST


def test_changes_are_only_what_differs() -> None:
    broker = BrokerConfig.load(None)
    current = {"retention.ms": "1", "segment.ms": "2", "flush.ms": "3"}
    alterations = [
        ConfigAlteration("retention.ms", SET, "1"),
        ConfigAlteration("segment.ms", SET, "5"),
        ConfigAlteration("flush.ms", DELETE, None),
        ConfigAlteration("flush.messages", DELETE, None),
    ]
    assert alter_topic(current, alterations, broker) == {"segment.ms": "5", "flush.ms": None}
    assert replace_topic(current, {"segment.ms": "2"}, broker) == {"retention.ms": None, "flush.ms": None}
    assert replace_broker({"log.roll.ms": "1"}, {}, broker, per_broker=True) == {"log.roll.ms": None}


def test_lists_grow_and_shrink() -> None:
    broker = BrokerConfig.load(None)
    append = [ConfigAlteration("cleanup.policy", APPEND, "compact, delete")]
    assert alter_topic({}, append, broker) == {"cleanup.policy": "delete,compact"}
    subtract = [ConfigAlteration("cleanup.policy", SUBTRACT, "delete")]
    assert alter_topic({"cleanup.policy": "compact,delete"}, subtract, broker) == {"cleanup.policy": "compact"}


def test_hostile_sizes_cost_little_and_are_not_echoed() -> None:
    broker = BrokerConfig.load(None)
    many = ",".join(str(number) for number in range(16_000))
    with pytest.raises(InvalidAlteration) as caught:
        alter_topic({}, [ConfigAlteration("cleanup.policy", APPEND, many)], broker)
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidAlteration) as caught:
        alter_topic({}, [ConfigAlteration("cleanup.policy", SET, "a" + " " * 32_000 + "a")], broker)
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidAlteration, match="host:count"):
        overrides = ConfigAlteration("max.connections.per.ip.overrides", SET, "h:" + "9" * 5000)
        alter_broker({}, [overrides], broker, per_broker=True)
    with pytest.raises(InvalidAlteration, match="altered twice"):
        alter_topic({}, [ConfigAlteration(str(number % 99_999), SET, "1") for number in range(100_000)], broker)


def test_new_topics() -> None:
    broker = BrokerConfig.load(None)
    assert check_new_topic({"retention.ms": "5"}, broker) == {"retention.ms": "5"}
    for configs in ({"retention.ms": None}, {"nope": "1"}, {"retention.ms": "x"}, {"remote.storage.enable": "true"}):
        with pytest.raises(InvalidAlteration) as caught:
            check_new_topic(configs, broker)
        assert caught.value.error_code == INVALID_CONFIG
    with pytest.raises(InvalidAlteration) as caught:
        replace_topic({}, {"retention.ms": None}, broker)
    assert caught.value.error_code == INVALID_REQUEST


def test_listeners_do_not_change_while_the_broker_runs() -> None:
    broker = BrokerConfig.load(None)
    with pytest.raises(InvalidAlteration, match=r"^Cannot update these configs dynamically: Set\(listeners\)"):
        alter_broker({}, [ConfigAlteration("listeners", SET, "PLAINTEXT://:1")], broker, per_broker=True)
    with pytest.raises(InvalidAlteration, match=r"broker id must be specified: Set\(cordoned.log.dirs\)"):
        alter_broker({}, [ConfigAlteration("cordoned.log.dirs", SET, "*")], broker, per_broker=False)


@pytest.mark.parametrize("properties", [[], ["pybroker.durability=acks", "log.retention.ms=-1", "log.flush.offset=1"]])
@pytest.mark.parametrize(
    "overrides", [{}, {"internal.segment.bytes": "4096", "flush.messages": "1", "cleanup.policy": "compact,delete"}]
)
def test_what_is_described_can_be_sent_back(properties: list[str], overrides: dict[str, str]) -> None:
    broker = BrokerConfig.load(None, properties)
    entries = describe_topic(overrides, broker)
    described = {entry.name: entry.value for entry in entries}
    assert [name for name, value in described.items() if value is None] == []
    assert [s.name for entry in entries for s in entry.synonyms if s.value is None] == []
    wanted = described | {"retention.bytes": "5000"}
    changes = replace_topic(overrides, wanted, broker)
    kept = {name: text for name, text in (overrides | changes).items() if text is not None}
    after = TopicConfig.resolve(kept, broker)
    assert after.get("retention.bytes") == 5000
    assert after.durability == TopicConfig.resolve(overrides, broker).durability
    assert {e.name: e.value for e in describe_topic(kept, broker)} == wanted
    assert check_new_topic(wanted, broker) == wanted


def test_controllers_of_apache_kafka_know_every_setting_that_is_described() -> None:
    voters = ["process.roles=broker", "node.id=1", "controller.quorum.voters=3@127.0.0.1:9093"]
    broker = BrokerConfig.load(None, [*voters, "pybroker.durability=acks"])
    assert not any(entry.name.startswith("pybroker.") for entry in describe_topic({}, broker))
    own = {"pybroker.durability": "none"}
    assert [e.value for e in describe_topic(own, broker) if e.name.startswith("pybroker.")] == ["none"]


def test_our_own_key_is_described_like_kafkas() -> None:
    entry = describe_topic({"pybroker.durability": "acks"}, BrokerConfig.load(None), ["pybroker.durability"])[0]
    assert (entry.value, entry.source.name, entry.type_id) == ("acks", "TOPIC", 2)
    assert entry.documentation is not None
    assert entry.documentation.startswith("The promise of an acknowledgement")


@pytest.mark.parametrize(
    ("count", "is_accepted"), [("1", False), ("2", True), ("8", True), ("9", False), ("0", False), ("4", True)]
)
def test_threads_change_by_a_factor_of_two_at_most(count: str, is_accepted: bool) -> None:
    broker = BrokerConfig.load(None, ["log.cleaner.threads=4"])
    alteration = [ConfigAlteration("log.cleaner.threads", SET, count)]
    if is_accepted:
        alter_broker({}, alteration, broker, per_broker=False)
        return
    with pytest.raises(InvalidAlteration, match=r"from 4 to .* accepted: 2 to 8") as caught:
        alter_broker({}, alteration, broker, per_broker=False)
    assert caught.value.error_code == INVALID_REQUEST
