"""DescribeConfigs' description of topics and brokers: value, source and synonyms of each key, in Kafka's order.

Pure functions. Nothing secret leaves: the value of a password, or of a key that nobody knows, is None.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import NamedTuple

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_keys import BROKER_KEYS, base_name, find_key
from pybroker.config.definition import ConfigError, ConfigKey, UpdateMode, format_value
from pybroker.config.kept import parse_kept
from pybroker.config.keys.own import DURABILITY
from pybroker.config.keys.synonyms import SYNONYMS
from pybroker.config.topic import TOPIC_KEYS, TopicConfig, topic_value_text
from pybroker.values import Value

UNKNOWN_TYPE = 0


class ConfigSource(enum.IntEnum):
    """Where a value comes from; the numbers are those of the DescribeConfigs response (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One layer that gives the key a value. `value` is None where it must not be shown."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(Value):
    """One entry of a DescribeConfigs response."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    read_only: bool
    #: The id of its ConfigType, 0 for a key that nobody knows.
    type_id: int
    #: The layers from the strongest to the weakest.
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


#: Broker keys that stand for one another, the strongest first.
_BROKER_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    name: tuple(synonym.name for synonym in group)
    for group in SYNONYMS.values()
    if len(group) > 1
    for name in (synonym.name for synonym in group)
    # Kafka takes the flush scheduler as a stand-in for log.flush.interval.ms, not the other way.
    if name != "log.flush.scheduler.interval.ms"
}


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    """The topic keys of `names` (None: all) for a topic with these overrides."""
    config = TopicConfig.resolve(overrides, broker)
    return [
        _topic_entry(key, overrides, config, broker)
        for name, key in TOPIC_KEYS.items()
        if _wanted(name, names) and (name in overrides or not _is_hidden(key, broker))
    ]


def describe_broker(broker: BrokerConfig, names: Collection[str] | None = None) -> list[DescribedConfig]:
    """The keys of `names` (None: all) of this broker, with unknown keys that somebody set."""
    given = {*broker.static, *broker.dynamic_default, *broker.dynamic_broker}
    shown = {name for name, key in BROKER_KEYS.items() if not key.internal} | given
    return [_broker_entry(name, broker) for name in sorted(shown) if _wanted(name, names)]


def describe_default_broker(broker: BrokerConfig, names: Collection[str] | None = None) -> list[DescribedConfig]:
    """The dynamic defaults of all brokers: only what is set there."""
    entries = []
    for name, text in sorted(broker.dynamic_default.items()):
        if not _wanted(name, names):
            continue
        key = BROKER_KEYS.get(name)
        sensitive = key is None or key.sensitive
        shown = None if sensitive or key is None else _canonical(key, text)
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        synonyms = (ConfigSynonym(name, None if sensitive else text, source),)
        read_only = key is None or key.update_mode is UpdateMode.READ_ONLY
        type_id = UNKNOWN_TYPE if key is None else key.type.value
        documentation = None if key is None else key.documentation
        entries.append(DescribedConfig(name, shown, source, sensitive, read_only, type_id, synonyms, documentation))
    return entries


def _is_hidden(key: ConfigKey, broker: BrokerConfig) -> bool:
    """Whether a topic's setting is left out until the topic has it. Apache Kafka's controllers refuse settings that
    they do not know, and clients send them all that was described."""
    return key.internal or (broker.joins_quorum and key is DURABILITY)


def _wanted(name: str, names: Collection[str] | None) -> bool:
    return names is None or name in names


def _canonical(key: ConfigKey, text: str) -> str | None:
    """The text as Kafka writes it; as it stands if the key does not accept it."""
    try:
        return format_value(parse_kept(key, text)[0])
    except ConfigError:
        return text


def _topic_entry(
    key: ConfigKey, overrides: Mapping[str, str], config: TopicConfig, broker: BrokerConfig
) -> DescribedConfig:
    synonyms: tuple[ConfigSynonym, ...] = ()
    if key.name in overrides:
        text = topic_value_text(key, overrides[key.name])
        synonyms = (ConfigSynonym(key.name, text, ConfigSource.TOPIC),)
    if key.name in SYNONYMS:
        synonyms += _broker_layers(SYNONYMS[key.name][0].name, broker, sensitive=False)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    value = format_value(config.get(key.name))
    return DescribedConfig(key.name, value, source, False, False, key.type.value, synonyms, key.documentation)


def _broker_entry(name: str, broker: BrokerConfig) -> DescribedConfig:
    key = find_key(name)
    sensitive = key is None or key.sensitive
    synonyms = _broker_layers(name, broker, sensitive)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    if key is None:
        return DescribedConfig(name, None, source, True, True, UNKNOWN_TYPE, synonyms, None)
    given = synonyms[0].value if synonyms else None
    text = format_value(broker.get(name)) if name in BROKER_KEYS else given
    value = None if sensitive else text
    # A key with the prefix of one listener is shown as read-only, as Kafka does, although it can be altered.
    read_only = name not in BROKER_KEYS or key.update_mode is UpdateMode.READ_ONLY
    return DescribedConfig(name, value, source, sensitive, read_only, key.type.value, synonyms, key.documentation)


def _broker_layers(name: str, broker: BrokerConfig, sensitive: bool) -> tuple[ConfigSynonym, ...]:
    """The layers behind a broker key. As in Kafka, what comes before the first entry of the name itself is left out."""
    names = _BROKER_SYNONYMS.get(name, (name,))
    base = find_key(name)
    if name not in BROKER_KEYS and base is not None:
        names = (name, base_name(name))
    layers = (
        (ConfigSource.DYNAMIC_BROKER, broker.dynamic_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, broker.dynamic_default),
        (ConfigSource.STATIC_BROKER, broker.static),
    )
    found = [
        ConfigSynonym(synonym, None if sensitive else layer[synonym], source)
        for source, layer in layers
        for synonym in names
        if synonym in layer
    ]
    defaults = {synonym: BROKER_KEYS[synonym].default for synonym in names if synonym in BROKER_KEYS}
    for synonym, default in defaults.items():
        if default is not None and not BROKER_KEYS[synonym].dynamic_only:
            found.append(ConfigSynonym(synonym, None if sensitive else default, ConfigSource.DEFAULT))
    start = next((place for place, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[start:])
