"""A topic's configuration: its own overrides on top of the broker's settings.

A TopicConfig is a value, made anew when the topic's overrides or the broker's settings change; any thread may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import (
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    by_name,
    format_value,
    split_list,
)
from pybroker.config.kept import parse_kept
from pybroker.config.keys.own import DURABILITY, DURABILITY_BY_FLUSH
from pybroker.config.keys.synonyms import SYNONYMS
from pybroker.config.keys.topic import TOPIC_KEYS as _KAFKA_TOPIC_KEYS
from pybroker.config.values import ConfigValues

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that only coordinators write to."""

TOPIC_KEYS: Mapping[str, ConfigKey] = by_name(_KAFKA_TOPIC_KEYS, (DURABILITY,))

_UNBOUNDED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicConfig(ConfigValues):
    """Every topic key with its effective value. Get one by `resolve`."""

    #: The topic's own settings as they were given.
    overrides: Mapping[str, str]
    #: Overrides that could not be used, in plain words; the broker's value stands in for them.
    warnings: tuple[str, ...]
    _values: Mapping[str, ConfigValue]

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """The configuration of a topic: its override, else the first synonym with a value, else the default."""
        warnings = []
        values = {}
        for name, key in TOPIC_KEYS.items():
            values[name] = _from_broker(name, key, broker)
            if name in overrides:
                try:
                    values[name], raised = parse_kept(key, _each_once(key, overrides[name]))
                except ConfigError as error:
                    warnings.append(f"{error}; the broker's value is used")
                    continue
                if raised:
                    warnings.append(raised)
        return cls(dict(overrides), tuple(warnings), values)

    @property
    def durability(self) -> str:
        """`none`, `interval` or `acks`: what an acknowledgement promises. An explicit setting wins over flush.*."""
        explicit = self.get_str(DURABILITY.name)
        if explicit != DURABILITY_BY_FLUSH:
            return explicit
        if self.get_int("flush.messages") == 1:
            return "acks"
        bounded = self.get_int("flush.messages") < _UNBOUNDED or self.get_int("flush.ms") < _UNBOUNDED
        return "interval" if bounded else "none"

    @property
    def segment_bytes(self) -> int:
        """Size at which a segment is rolled; the key for tests wins over segment.bytes."""
        internal = self._values["internal.segment.bytes"]
        return internal if isinstance(internal, int) else self.get_int("segment.bytes")

    @property
    def compact(self) -> bool:
        """Whether the cleaner keeps only the last record of each key."""
        return "compact" in self.get_list("cleanup.policy")

    @property
    def delete(self) -> bool:
        """Whether segments are deleted by age and size."""
        return "delete" in self.get_list("cleanup.policy")


def parse_topic_value(key: ConfigKey, text: str, where: str = "") -> ConfigValue:
    """The value of a topic key. Unlike in server.properties, a repeated element of a list counts once (KIP-1161)."""
    return key.parse(_each_once(key, text), where)


def topic_value_text(key: ConfigKey, text: str) -> str | None:
    """An override as DescribeConfigs shows it: parsed, raised to its bound, and written again; the text itself if it
    cannot be parsed."""
    try:
        return format_value(parse_kept(key, _each_once(key, text))[0])
    except ConfigError:
        return text


def _each_once(key: ConfigKey, text: str) -> str:
    if key.type is not ConfigType.LIST:
        return text
    items = split_list(text)
    # An empty element is none, however often it comes: the list that is left must not pass for an empty one.
    return ",".join(dict.fromkeys(items)) if all(items) else text


def _from_broker(name: str, key: ConfigKey, broker: BrokerConfig) -> ConfigValue:
    for synonym in SYNONYMS.get(name, ()):
        value = broker.get(synonym.name)
        if value is None:
            continue
        if synonym.factor != 1 and isinstance(value, int):
            value *= synonym.factor
        if name == "retention.ms" and isinstance(value, int) and value < 0:
            return -1
        return value
    return key.default_value
