"""Kafka's broker keys that can only be set dynamically: the replication throttles (KIP-73, KIP-113)."""

from __future__ import annotations

from pybroker.config.definition import ConfigKey, ConfigType, Importance, Range, UpdateMode


def _throttle(name: str, documentation: str, honoured: bool = False) -> ConfigKey:
    """A throttle: unlimited unless set, and shown only then."""
    return ConfigKey(name, ConfigType.LONG, str(2**63 - 1), Importance.MEDIUM, documentation, Range(0),
                     UpdateMode.CLUSTER_WIDE, internal=True, dynamic_only=True, honoured=honoured)  # fmt: skip


THROTTLE_KEYS: tuple[ConfigKey, ...] = (
    _throttle(
        "leader.replication.throttled.rate",
        "Bytes per second that this broker sends for throttled replicas.",
        honoured=True,
    ),
    _throttle(
        "follower.replication.throttled.rate",
        "Bytes per second that this broker fetches for throttled replicas.",
        honoured=True,
    ),
    _throttle(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "Bytes per second for moves of replicas between the log directories of this broker.",
        honoured=True,
    ),
)
