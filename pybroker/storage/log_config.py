"""From a topic's configuration to the settings of a partition's log. Pure."""

from __future__ import annotations

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import INTERNAL_TOPICS, TopicConfig
from pybroker.native.partition import DEFAULT_LEVEL, PartitionConfig
from pybroker.storage.retention import RetentionPolicy

_CODEC_IDS = {"producer": -1, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_LEVEL_KEYS = {"gzip": "compression.gzip.level", "lz4": "compression.lz4.level", "zstd": "compression.zstd.level"}
_GZIP_DEFAULT_LEVEL = -1


def partition_config(topic: str, config: TopicConfig, broker: BrokerConfig) -> PartitionConfig:
    """The settings of every partition of `topic`."""
    compression = config.get_str("compression.type")
    return PartitionConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.get_int("segment.ms"),
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
        internal=topic in INTERNAL_TOPICS,
        transactional=not broker.get_bool("transaction.partition.verification.enable"),
    )


def _level(compression: str, config: TopicConfig) -> int:
    key = _LEVEL_KEYS.get(compression)
    if key is None:
        return DEFAULT_LEVEL
    level = config.get_int(key)
    return DEFAULT_LEVEL if compression == "gzip" and level == _GZIP_DEFAULT_LEVEL else level


def retention_policy(config: TopicConfig) -> RetentionPolicy:
    """How long, and how much of, the topic is kept."""
    return RetentionPolicy(config.delete, config.get_int("retention.bytes"), config.get_int("retention.ms"))
