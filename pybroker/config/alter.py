"""Changes of topic and broker configurations: what AlterConfigs, IncrementalAlterConfigs and CreateTopics accept.

Pure functions from the present overrides and a request to the changes that the metadata log should record. Failures:
InvalidAlteration, with the error code of Kafka's protocol.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from pybroker.config.broker import NEEDS_RESTART, BrokerConfig
from pybroker.config.broker_keys import find_key
from pybroker.config.definition import ConfigError, ConfigKey, ConfigType, UpdateMode, split_list
from pybroker.config.kept import raised_text
from pybroker.config.topic import TOPIC_KEYS, TopicConfig, parse_topic_value
from pybroker.values import Value

INVALID_CONFIG = 40
INVALID_REQUEST = 42

#: No record has room for more.
_MAX_VALUE_BYTES = 2**15 - 1

_NULL_VALUE = "Null value not supported for topic configs: {}. Leave the key out to take its default"

#: Name → new text, None to remove the override: one ConfigRecord each.
Changes = dict[str, str | None]

#: Keys that Kafka lets change only under the prefix of a listener (KIP-226).
_PER_LISTENER = frozenset(
    {"ssl.key.password"}
    | {f"ssl.keystore.{part}" for part in ("certificate.chain", "key", "location", "password", "type")}
    | {f"ssl.truststore.{part}" for part in ("certificates", "location", "password", "type")}
)


_THREAD_COUNTS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)


class AlterOperation(enum.IntEnum):
    """The operation on a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigAlteration(Value):
    """One entry of an IncrementalAlterConfigs request. `operation` is the number from the wire."""

    name: str
    operation: int
    value: str | None


class InvalidAlteration(Exception):
    """A change that is refused, as a whole. `error_code` is Kafka's; the text says what to do instead."""

    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


def alter_topic(current: Mapping[str, str], alterations: Iterable[ConfigAlteration], broker: BrokerConfig) -> Changes:
    """The changes to a topic's overrides by an incremental request. Raises InvalidAlteration."""
    wanted = _apply(current, list(alterations), TOPIC_KEYS.get)
    return _checked_topic_changes(current, wanted, broker)


def replace_topic(current: Mapping[str, str], configs: Mapping[str, str | None], broker: BrokerConfig) -> Changes:
    """The changes that leave a topic with exactly `configs` (the older AlterConfigs). Raises InvalidAlteration."""
    return _checked_topic_changes(current, _without_null(configs), broker)


def check_new_topic(configs: Mapping[str, str | None], broker: BrokerConfig) -> dict[str, str]:
    """The overrides of a topic to be created. Raises InvalidAlteration (INVALID_CONFIG for a null value, too)."""
    for name, value in configs.items():
        if value is None:
            raise InvalidAlteration(INVALID_CONFIG, _NULL_VALUE.format(name))
    wanted = _without_null(configs)
    _check_topic({}, wanted, broker)
    return wanted


def alter_broker(
    current: Mapping[str, str], alterations: Iterable[ConfigAlteration], broker: BrokerConfig, *, per_broker: bool
) -> Changes:
    """The changes to the dynamic settings of this broker, or (`per_broker` False) of all. Raises InvalidAlteration."""
    wanted = _apply(current, list(alterations), find_key)
    return _checked_broker_changes(current, wanted, broker, per_broker)


def replace_broker(
    current: Mapping[str, str], configs: Mapping[str, str | None], broker: BrokerConfig, *, per_broker: bool
) -> Changes:
    """As alter_broker, but `configs` replaces all that was set. Raises InvalidAlteration."""
    return _checked_broker_changes(current, _without_null(configs), broker, per_broker)


def _without_null(configs: Mapping[str, str | None]) -> dict[str, str]:
    wanted = {}
    for name, value in configs.items():
        if value is None:
            raise InvalidAlteration(INVALID_REQUEST, _NULL_VALUE.format(name))
        wanted[name] = value
    return wanted


def _apply(
    current: Mapping[str, str], alterations: list[ConfigAlteration], find: Callable[[str], ConfigKey | None]
) -> dict[str, str]:
    """The overrides after the alterations."""
    counts = Counter(alteration.name for alteration in alterations)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise InvalidAlteration(
            INVALID_REQUEST, f"Error due to duplicate config keys. {repeated[0]} is altered twice in one request"
        )
    wanted = dict(current)
    for alteration in alterations:
        name = alteration.name
        if alteration.operation == AlterOperation.DELETE:
            wanted.pop(name, None)
            continue
        if alteration.value is None:
            raise InvalidAlteration(
                INVALID_REQUEST, f"Null value not supported for : {name}. Use DELETE to remove the setting"
            )
        if alteration.operation == AlterOperation.SET:
            wanted[name] = alteration.value
        elif alteration.operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            wanted[name] = _edit_list(find(name), current.get(name), alteration)
        else:
            raise InvalidAlteration(
                INVALID_REQUEST,
                f"Unknown operations type {alteration.operation} of {name}; "
                "accepted: 0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT",
            )
    return wanted


def _edit_list(key: ConfigKey | None, present: str | None, alteration: ConfigAlteration) -> str:
    """The list after APPEND or SUBTRACT. A key that is not set starts from Kafka's default, not from
    server.properties."""
    if key is None or key.type is not ConfigType.LIST:
        what = AlterOperation(alteration.operation).name
        raise InvalidAlteration(
            INVALID_CONFIG, f"Can't {what} to key {alteration.name} because its type is not LIST. Use SET"
        )
    items = split_list((key.default or "") if present is None else present)
    edits = split_list(alteration.value or "")
    if alteration.operation == AlterOperation.APPEND:
        return ",".join(dict.fromkeys(items + edits))
    removed = set(edits)
    return ",".join(item for item in items if item not in removed)


def _changes(current: Mapping[str, str], wanted: Mapping[str, str]) -> Changes:
    changes: Changes = {name: text for name, text in wanted.items() if current.get(name) != text}
    for name, text in changes.items():
        if text is not None and len(text.encode()) > _MAX_VALUE_BYTES:
            raise InvalidAlteration(
                INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{_MAX_VALUE_BYTES} bytes. It is that of {name}",
            )
    changes.update({name: None for name in current if name not in wanted})
    return changes


def _checked_topic_changes(current: Mapping[str, str], wanted: dict[str, str], broker: BrokerConfig) -> Changes:
    _check_topic(current, wanted, broker)
    return _changes(current, wanted)


def _check_topic(current: Mapping[str, str], wanted: Mapping[str, str], broker: BrokerConfig) -> None:
    for name, text in wanted.items():
        if name not in TOPIC_KEYS:
            raise InvalidAlteration(INVALID_CONFIG, f"Unknown topic config name: {name}")
        if current.get(name) == text and raised_text(TOPIC_KEYS[name], text):
            # An older Kafka took it, and nobody sets it anew.
            continue
        try:
            parse_topic_value(TOPIC_KEYS[name], text)
        except ConfigError as error:
            raise InvalidAlteration(INVALID_CONFIG, str(error)) from None
    config = TopicConfig.resolve(wanted, broker)
    least, most = config.get_int("min.compaction.lag.ms"), config.get_int("max.compaction.lag.ms")
    if least > most:
        raise InvalidAlteration(
            INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )
    if config.get_bool("remote.storage.enable"):
        raise InvalidAlteration(
            INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage. Leave remote.storage.enable out",
        )


def _checked_broker_changes(
    current: Mapping[str, str], wanted: dict[str, str], broker: BrokerConfig, per_broker: bool
) -> Changes:
    changes = _changes(current, wanted)
    for name, text in changes.items():
        if text is not None:
            _check_broker_key(name, text, per_broker)
    try:
        if per_broker:
            altered = broker.with_dynamic(broker.dynamic_default, wanted)
        else:
            altered = broker.with_dynamic(wanted, broker.dynamic_broker)
    except ConfigError as error:
        raise InvalidAlteration(INVALID_REQUEST, str(error)) from None
    _check_thread_counts(broker, altered)
    return changes


def _check_thread_counts(present: BrokerConfig, altered: BrokerConfig) -> None:
    """Kafka lets a running broker have half to twice as many threads at a time (KIP-226)."""
    for name in _THREAD_COUNTS:
        before, after = present.get_int(name), altered.get_int(name)
        if before != after and not max(1, before // 2) <= after <= before * 2:
            bound = "be at least half" if after < before else "not be greater than double"
            raise InvalidAlteration(
                INVALID_REQUEST,
                f"Dynamic thread count update validation failed for {name}={after}, value should {bound} the current "
                f"value {before}. {name} cannot go from {before} to {after} at once; accepted: "
                f"{max(1, before // 2)} to {before * 2}",
            )


def _check_broker_key(name: str, text: str, per_broker: bool) -> None:
    """Whether the key may change while brokers run. As in Kafka a key that nobody knows is kept, without effect."""
    key = find_key(name)
    if key is None:
        return
    if key.update_mode is UpdateMode.READ_ONLY or name in NEEDS_RESTART:
        raise InvalidAlteration(
            INVALID_REQUEST,
            f"Cannot update these configs dynamically: Set({name}). Set it in server.properties and restart",
        )
    if not per_broker and key.update_mode is UpdateMode.PER_BROKER:
        raise InvalidAlteration(
            INVALID_REQUEST,
            f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})",
        )
    if name in _PER_LISTENER:
        raise InvalidAlteration(
            INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"Set({name}). Alter listener.name.<listener>.{name}",
        )
    try:
        key.parse(text)
    except ConfigError as error:
        raise InvalidAlteration(INVALID_REQUEST, str(error)) from None
