"""Values from files and metadata of older Kafkas: one below a bound that Kafka has raised since counts as the bound.

Kafka raised bounds of settings in 3.x and 4.x, several with KIP-1030. A new value has to keep today's bound; one that
an older Kafka took must not end a start. Pure. Failures: ConfigError, for values that no Kafka took.
"""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.config.definition import ConfigError, ConfigKey, ConfigValue, Range, parse_value

ANY = None

#: Setting to the least value that Kafka 3.0 took, or the first version that had the setting.
_LEAST_BEFORE: Mapping[str, int | None] = {
    "controller.quorum.append.linger.ms": ANY,
    "controller.quorum.election.backoff.max.ms": ANY,
    "controller.quorum.election.timeout.ms": ANY,
    "controller.quorum.fetch.timeout.ms": ANY,
    "controller.quorum.request.timeout.ms": ANY,
    "controller.quorum.retry.backoff.ms": ANY,
    "flush.messages": 0,
    "leader.imbalance.check.interval.seconds": ANY,
    "log.cleaner.delete.retention.ms": ANY,
    "log.cleaner.max.compaction.lag.ms": ANY,
    "log.cleaner.min.cleanable.ratio": ANY,
    "log.cleaner.min.compaction.lag.ms": ANY,
    "log.segment.bytes": 14,
    "metadata.log.segment.bytes": 12,
    "num.replica.fetchers": ANY,
    "remote.log.manager.copier.thread.pool.size": -1,
    "remote.log.manager.expiration.thread.pool.size": -1,
    "segment.bytes": 14,
    "segment.index.bytes": 0,
}


def parse_kept(key: ConfigKey, text: str, where: str = "") -> tuple[ConfigValue, str]:
    """The value that a text which is kept stands for, and what to tell of it: "" unless the value was raised."""
    try:
        return key.parse(text, where), ""
    except ConfigError:
        bound = _raised(key, text)
        if bound is None:
            raise
    return bound, f"{key.name}={text.strip()} is raised to {bound}, the least that Kafka takes by now; set that"


def raised_text(key: ConfigKey, text: str) -> str:
    """The notice about a text that is kept: "" unless its value is raised."""
    try:
        return parse_kept(key, text)[1]
    except ConfigError:
        return ""


def _raised(key: ConfigKey, text: str) -> int | None:
    """The bound that stands for the value; None when no Kafka took it."""
    if key.name not in _LEAST_BEFORE or not isinstance(key.validator, Range) or key.validator.minimum is None:
        return None
    try:
        value = parse_value(key.type, text)
    except ValueError:
        return None
    least = _LEAST_BEFORE[key.name]
    if not isinstance(value, int | float) or (least is not None and value < least):
        return None
    return int(key.validator.minimum) if value < key.validator.minimum else None
