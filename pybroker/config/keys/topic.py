"""Kafka's configuration keys for topics.

Names, types, defaults and bounds are those of Apache Kafka 4.3.0; the tests hold them against its jars.
"""

from __future__ import annotations

from pybroker.config.definition import (
    ConfigKey,
    ConfigType,
    Importance,
    ListOf,
    OneOf,
    Range,
    ThrottledReplicas,
    UpdateMode,
)

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
MEDIUM = Importance.MEDIUM
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

# A table reads best with one key per row.
# fmt: off
TOPIC_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("cleanup.policy", LIST, "delete", MEDIUM,
              "What happens to old segments: delete drops them, compact keeps the last record of each key.",
              ListOf("compact", "delete"), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("compression.gzip.level", INT, "-1", MEDIUM,
              "Level when the broker compresses this topic with gzip.",
              Range(1, 9, extra=-1), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("compression.lz4.level", INT, "9", MEDIUM,
              "Level when the broker compresses this topic with lz4.",
              Range(1, 17), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("compression.type", STRING, "producer", MEDIUM,
              "Codec in which batches are stored; producer keeps the one the producer chose.",
              OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
              update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("compression.zstd.level", INT, "3", MEDIUM,
              "Level when the broker compresses this topic with zstd.",
              Range(-131072, 22), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("delete.retention.ms", LONG, "86400000", MEDIUM,
              "How long a tombstone stays readable after cleaning.", Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("file.delete.delay.ms", LONG, "60000", MEDIUM,
              "How long a removed segment stays on disk, renamed, before its files are deleted.",
              Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("flush.messages", LONG, "9223372036854775807", MEDIUM,
              "How many records may gather before they are forced to disk; 1 forces each batch before it is "
              "acknowledged.",
              Range(1), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("flush.ms", LONG, "9223372036854775807", MEDIUM,
              "How long records may wait in memory before they are forced to disk.",
              Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("follower.replication.throttled.replicas", LIST, "", MEDIUM,
              "Replicas whose fetching is throttled, as partition:broker pairs, or * for all.",
              ThrottledReplicas(), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("index.interval.bytes", INT, "4096", MEDIUM,
              "Bytes of records between two entries of the offset index.",
              Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("internal.segment.bytes", INT, None, MEDIUM,
              "Segment size in tests, free of the lower bound of segment.bytes.",
              update_mode=CLUSTER_WIDE, internal=True, honoured=True),
    ConfigKey("leader.replication.throttled.replicas", LIST, "", MEDIUM,
              "Replicas whose leaders throttle them, as partition:broker pairs, or * for all.",
              ThrottledReplicas(), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("local.retention.bytes", LONG, "-2", MEDIUM,
              "Local size above which tiered segments leave the disk; -2 follows retention.bytes.",
              Range(-2), update_mode=CLUSTER_WIDE),
    ConfigKey("local.retention.ms", LONG, "-2", MEDIUM,
              "Age at which a tiered segment leaves the local disk; -2 follows retention.ms.",
              Range(-2), update_mode=CLUSTER_WIDE),
    ConfigKey("max.compaction.lag.ms", LONG, "9223372036854775807", MEDIUM,
              "Age at which a record must be due for compaction.", Range(1), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("max.message.bytes", INT, "1048588", MEDIUM,
              "Largest record batch that is accepted, after compression.",
              Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("message.timestamp.after.max.ms", LONG, "3600000", MEDIUM,
              "How far a record's timestamp may lie ahead of the broker's clock.",
              Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("message.timestamp.before.max.ms", LONG, "9223372036854775807", MEDIUM,
              "How far a record's timestamp may lie behind the broker's clock.",
              Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("message.timestamp.type", STRING, "CreateTime", MEDIUM,
              "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
              OneOf("CreateTime", "LogAppendTime"), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("min.cleanable.dirty.ratio", DOUBLE, "0.5", MEDIUM,
              "Share of uncleaned bytes from which a compacted log is worth cleaning.",
              Range(0, 1), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("min.compaction.lag.ms", LONG, "0", MEDIUM,
              "Age below which a record is never compacted.", Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("min.insync.replicas", INT, "1", MEDIUM,
              "How many replicas must be in sync before a produce request with acks=all is accepted.",
              Range(1), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("preallocate", BOOLEAN, "false", MEDIUM,
              "Whether a new segment's disk space is reserved at once.", update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("remote.log.copy.disable", BOOLEAN, "false", MEDIUM,
              "Whether a tiered topic stops copying segments to remote storage.", update_mode=CLUSTER_WIDE),
    ConfigKey("remote.log.delete.on.disable", BOOLEAN, "false", MEDIUM,
              "Whether remote data is deleted when tiering is switched off.", update_mode=CLUSTER_WIDE),
    ConfigKey("remote.storage.enable", BOOLEAN, "false", MEDIUM,
              "Whether segments of this topic move to remote storage.", update_mode=CLUSTER_WIDE),
    ConfigKey("retention.bytes", LONG, "-1", MEDIUM,
              "Size of a partition above which its oldest segments are deleted, -1 for no bound.",
              update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("retention.ms", LONG, "604800000", MEDIUM,
              "Age at which a segment may be deleted, -1 for never.",
              Range(-1), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("segment.bytes", INT, "1073741824", MEDIUM,
              "Size at which the active segment is closed and a new one begins.",
              Range(1048576), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("segment.index.bytes", INT, "10485760", MEDIUM,
              "Upper bound on the size of an index file; a full one rolls the segment.",
              Range(4), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("segment.jitter.ms", LONG, "0", MEDIUM,
              "Upper bound of the random time taken off the roll age, so that segments do not roll all at once.",
              Range(0), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("segment.ms", LONG, "604800000", MEDIUM,
              "Age at which the active segment is rolled even when small.",
              Range(1), update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, "false", MEDIUM,
              "Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
              update_mode=CLUSTER_WIDE),
)
# fmt: on
