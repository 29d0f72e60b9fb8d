"""From a topic's configuration to the settings of a partition's log. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import INTERNAL_TOPICS, TopicConfig
from pybroker.native.partition import (
    DEFAULT_LEVEL,
    DURABILITY_ACKS,
    DURABILITY_INTERVAL,
    DURABILITY_NONE,
    TRANSACTIONS_REFUSED,
    TRANSACTIONS_TRUSTED,
    TRANSACTIONS_VERIFIED,
    CleanOptions,
    PartitionConfig,
)
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.cleaner_policy import CompactionPolicy, LogToClean
from pybroker.storage.logs.retention import RetentionPolicy
from pybroker.values import Value

_CODEC_IDS = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_LEVEL_KEYS = {"gzip": "compression.gzip.level", "lz4": "compression.lz4.level", "zstd": "compression.zstd.level"}
_GZIP_DEFAULT_LEVEL = -1
_MOST_BYTES_PER_SECOND = 2.0**63
_DURABILITIES = {"none": DURABILITY_NONE, "interval": DURABILITY_INTERVAL, "acks": DURABILITY_ACKS}


def partition_config(
    key: TopicPartition, config: TopicConfig, broker: BrokerConfig, reserve_bytes: int = 0
) -> PartitionConfig:
    """The settings of one partition, whose topic has this configuration. So much of its disk is kept free."""
    compression = config.get_str("compression.type")
    return PartitionConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=_segment_ms(config),
        segment_jitter_ms=config.get_int("segment.jitter.ms"),
        segment_index_bytes=config.get_int("segment.index.bytes"),
        index_interval_bytes=config.get_int("index.interval.bytes"),
        producer_expiration_ms=broker.get_int("producer.id.expiration.ms"),
        flush_messages=config.get_int("flush.messages"),
        flush_ms=config.get_int("flush.ms"),
        timestamp_before_max_ms=config.get_int("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=config.get_int("message.timestamp.after.max.ms"),
        max_message_bytes=config.get_int("max.message.bytes"),
        min_insync_replicas=config.get_int("min.insync.replicas"),
        timestamp_type=1 if config.get_str("message.timestamp.type") == "LogAppendTime" else 0,
        compression=_CODEC_IDS[compression],
        compression_level=_level(compression, config),
        compact=config.compact,
        preallocate=config.get_bool("preallocate"),
        internal=key[0] in INTERNAL_TOPICS,
        transactional=_transactional(broker),
        durability=_DURABILITIES[config.durability],
        leader_throttled=is_throttled(config.get_list("leader.replication.throttled.replicas"), key[1], broker.node_id),
        follower_throttled=is_throttled(
            config.get_list("follower.replication.throttled.replicas"), key[1], broker.node_id
        ),
        reserve_bytes=reserve_bytes,
        max_decompressed_message_bytes=config.get_int("max.decompressed.message.bytes"),
    )


def _transactional(broker: BrokerConfig) -> int:
    if not broker.get_bool("transaction.partition.verification.enable"):
        return TRANSACTIONS_TRUSTED
    # A broker that is its own controller is alone, and coordinates no transactions: there is nobody to ask.
    return TRANSACTIONS_VERIFIED if broker.joins_quorum else TRANSACTIONS_REFUSED


def is_throttled(replicas: Sequence[str], partition: int, node_id: int) -> bool:
    """Whether a list of throttled replicas (KIP-73) has that one."""
    return "*" in replicas or f"{partition}:{node_id}" in replicas


def _segment_ms(config: TopicConfig) -> int:
    """Records that may be compacted have to be in a sealed segment in time (KIP-354)."""
    segment_ms = config.get_int("segment.ms")
    return min(segment_ms, config.get_int("max.compaction.lag.ms")) if config.compact else segment_ms


def _level(compression: str, config: TopicConfig) -> int:
    key = _LEVEL_KEYS.get(compression)
    if key is None:
        return DEFAULT_LEVEL
    level = config.get_int(key)
    return DEFAULT_LEVEL if compression == "gzip" and level == _GZIP_DEFAULT_LEVEL else level


class CleanerConfig(Value):
    """The broker's log.cleaner.* settings. Sizes are each cleaner thread's share; `bytes_per_second` 0: no limit."""

    thread_count: int
    bytes_per_second: int
    map_bytes: int
    io_buffer_bytes: int
    load_factor_percent: int
    backoff_ms: int

    @classmethod
    def of(cls, broker: BrokerConfig) -> CleanerConfig:
        """As the broker is configured now."""
        thread_count = broker.get_int("log.cleaner.threads")
        rate = broker.get_float("log.cleaner.io.max.bytes.per.second")
        return cls(
            thread_count,
            max(1, int(rate)) if rate < _MOST_BYTES_PER_SECOND else 0,
            broker.get_int("log.cleaner.dedupe.buffer.size") // max(1, thread_count),
            broker.get_int("log.cleaner.io.buffer.size") // max(1, thread_count),
            min(100, max(1, round(broker.get_float("log.cleaner.io.buffer.load.factor") * 100))),
            broker.get_int("log.cleaner.backoff.ms"),
        )


def compaction_policy(config: TopicConfig) -> CompactionPolicy:
    """When the topic's logs are worth cleaning."""
    return CompactionPolicy(
        config.get_float("min.cleanable.dirty.ratio"),
        max(0, config.get_int("min.compaction.lag.ms")),
        config.get_int("max.compaction.lag.ms"),
    )


def clean_options(plan: LogToClean, config: TopicConfig, cleaner: CleanerConfig, now_ms: int) -> CleanOptions:
    """One pass over a log of the topic."""
    compression = config.get_str("compression.type")
    return CleanOptions(
        first_dirty_offset=plan.first_dirty_offset,
        upper_offset=plan.upper_offset,
        now_ms=now_ms,
        delete_retention_ms=config.get_int("delete.retention.ms"),
        map_bytes=cleaner.map_bytes,
        io_buffer_bytes=cleaner.io_buffer_bytes,
        load_factor_percent=cleaner.load_factor_percent,
        compression=_CODEC_IDS[compression],
        compression_level=_level(compression, config),
    )


def retention_policy(config: TopicConfig) -> RetentionPolicy:
    """How long, and how much of, the topic is kept."""
    return RetentionPolicy(config.delete, config.get_int("retention.bytes"), config.get_int("retention.ms"))
