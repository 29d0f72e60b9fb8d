"""Values that an older Kafka took: below a bound that was raised since, they count as the bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.config.alter import (
    ConfigAlteration,
    InvalidAlteration,
    alter_broker,
    alter_topic,
    check_new_topic,
    replace_topic,
)
from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_keys import BROKER_KEYS
from pybroker.config.check import Severity, check
from pybroker.config.definition import ConfigError
from pybroker.config.describe import describe_broker, describe_topic
from pybroker.config.kept import parse_kept
from pybroker.config.topic import TOPIC_KEYS, TopicConfig

SET, DELETE = 0, 1

#: Setting, a value that Kafka 3.0 (or the first to have it) took, and today's bound, as the ConfigDefs of 3.0.2, 3.9.1
#: and 4.4.0 have them.
BROKER = [
    ("log.segment.bytes", "107370", 1048576),
    ("log.segment.bytes", "14", 1048576),
    ("metadata.log.segment.bytes", "12", 8388608),
    ("num.replica.fetchers", "0", 1),
    ("leader.imbalance.check.interval.seconds", "0", 1),
    ("log.cleaner.delete.retention.ms", "-1", 0),
    ("log.cleaner.max.compaction.lag.ms", "0", 1),
    ("log.cleaner.min.cleanable.ratio", "-0.5", 0),
    ("log.cleaner.min.compaction.lag.ms", "-1", 0),
    ("controller.quorum.append.linger.ms", "-1", 0),
    ("controller.quorum.election.backoff.max.ms", "-1", 0),
    ("controller.quorum.election.timeout.ms", "-1", 0),
    ("controller.quorum.fetch.timeout.ms", "-1", 0),
    ("controller.quorum.request.timeout.ms", "-1", 0),
    ("controller.quorum.retry.backoff.ms", "-1", 0),
    ("remote.log.manager.copier.thread.pool.size", "-1", 1),
    ("remote.log.manager.expiration.thread.pool.size", "-1", 1),
]
TOPIC = [("segment.bytes", "107370", 1048576), ("segment.index.bytes", "0", 4), ("flush.messages", "0", 1)]


@pytest.mark.parametrize(("name", "text", "bound"), BROKER)
def test_a_file_of_an_older_kafka_starts(tmp_path: Path, name: str, text: str, bound: int) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"node.id=1\n{name}={text}\n")
    config = BrokerConfig.load(path)
    assert config.get(name) == bound
    assert f"{path}:2: {name}={text} is raised to {bound}" in "\n".join(config.warnings)
    (finding,) = [each for each in check(path) if name in each.keys and each.kind == "raised"]
    assert finding.severity is Severity.WARNING
    assert [each.severity for each in check(path) if each.severity is Severity.ERROR] == []
    (entry,) = describe_broker(config, [name])
    assert float(entry.value or "") == bound


@pytest.mark.parametrize(("name", "text", "bound"), [each for each in BROKER if "cleaner" in each[0]] + BROKER[:1])
def test_dynamic_values_of_an_older_kafka_count(name: str, text: str, bound: int) -> None:
    broker = BrokerConfig.load(None).with_dynamic({name: text}, {})
    assert broker.get(name) == bound
    assert any(f"{name}={text} is raised to {bound}" in each for each in broker.warnings)
    other = [ConfigAlteration("log.retention.ms", SET, "1000")]
    assert alter_broker({name: text}, other, broker, per_broker=False) == {"log.retention.ms": "1000"}
    with pytest.raises(InvalidAlteration, match=f"Invalid value {text} for configuration {name}"):
        alter_broker({}, [ConfigAlteration(name, SET, text)], BrokerConfig.load(None), per_broker=False)


@pytest.mark.parametrize(("name", "text", "bound"), TOPIC)
def test_topics_of_an_older_kafka(name: str, text: str, bound: int) -> None:
    broker, kept = BrokerConfig.load(None), {name: text}
    config = TopicConfig.resolve(kept, broker)
    assert config.get(name) == bound
    assert [each.startswith(f"{name}={text} is raised to {bound}") for each in config.warnings] == [True]
    if name == "segment.bytes":
        assert config.segment_bytes == bound
    (entry,) = describe_topic(kept, broker, [name])
    assert (entry.value, entry.source.name, entry.synonyms[0].value) == (str(bound), "TOPIC", str(bound))
    assert alter_topic(kept, [ConfigAlteration("retention.ms", SET, "5")], broker) == {"retention.ms": "5"}
    assert alter_topic(kept, [ConfigAlteration(name, SET, str(bound))], broker) == {name: str(bound)}
    assert alter_topic(kept, [ConfigAlteration(name, DELETE, None)], broker) == {name: None}
    described = {each.name: each.value for each in describe_topic(kept, broker)}
    assert replace_topic(kept, described, broker)[name] == str(bound)


@pytest.mark.parametrize(("name", "text", "bound"), TOPIC)
def test_new_values_keep_todays_bounds(name: str, text: str, bound: int) -> None:
    broker = BrokerConfig.load(None)
    for current in ({}, {name: str(bound)}):
        with pytest.raises(InvalidAlteration, match=f"Invalid value {text} for configuration {name}"):
            alter_topic(current, [ConfigAlteration(name, SET, text)], broker)
    with pytest.raises(InvalidAlteration, match=f"Invalid value {text} for configuration {name}"):
        check_new_topic({name: text}, broker)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.segment.bytes", "13"),
        ("log.segment.bytes", "many"),
        ("metadata.log.segment.bytes", "11"),
        ("node.id", "-1"),
        ("log.index.size.max.bytes", "3"),
        ("remote.log.manager.copier.thread.pool.size", "-2"),
    ],
)
def test_what_no_kafka_took_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value {text} for configuration {name}"):
        BrokerConfig.load(None, [f"{name}={text}"])


def test_the_table_is_of_settings_that_have_a_bound() -> None:
    keys = {**BROKER_KEYS, **TOPIC_KEYS}
    for name, text, bound in (*BROKER, *TOPIC):
        assert parse_kept(keys[name], str(bound)) == (bound, "")
        assert parse_kept(keys[name], text)[0] == bound
