"""The broker settings that classic groups and offsets obey, with Kafka's names and defaults."""

from __future__ import annotations

from pybroker.config.values import ConfigValues
from pybroker.values import Value

#: The internal topic that holds groups and offsets.
OFFSETS_TOPIC = "__consumer_offsets"

#: How long a JoinGroup of a member without id may stay parked before the member is taken to be gone.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class GroupSettings(Value):
    """Read from the broker's configuration once at start."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    max_size: int = 2**31 - 1  # group.max.size
    members_max_bytes: int = 256 << 20  # pybroker.group.members.max.bytes
    offset_metadata_max_bytes: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 10_080 * 60_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    offsets_commit_timeout_ms: int = 5_000  # offsets.commit.timeout.ms
    offsets_load_buffer_bytes: int = 5 * 1024 * 1024  # offsets.load.buffer.size
    offsets_topic_partition_count: int = 50  # offsets.topic.num.partitions

    @classmethod
    def from_config(cls, config: ConfigValues) -> GroupSettings:
        """The settings that a broker's configuration says."""
        return cls(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            max_size=config.get_int("group.max.size"),
            members_max_bytes=config.get_int("pybroker.group.members.max.bytes"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
            offsets_commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            offsets_load_buffer_bytes=config.get_int("offsets.load.buffer.size"),
            offsets_topic_partition_count=config.get_int("offsets.topic.num.partitions"),
        )
