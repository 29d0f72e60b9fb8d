"""Kafka's configuration keys for tiered storage.

Names, types, defaults and bounds are those of the reference Apache Kafka; the tests hold them against its jars.
"""

from __future__ import annotations

from pybroker.config.definition import ConfigKey, ConfigType, Importance, NonEmpty, Range, UpdateMode

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

# A table reads best with one key per row.
# fmt: off
REMOTE_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("remote.log.storage.system.enable", BOOLEAN, "false", MEDIUM,
              "Whether segments may be kept in remote storage."),
    ConfigKey("remote.log.storage.manager.class.name", STRING, None, MEDIUM,
              "Class that stores and reads remote segments.", NonEmpty()),
    ConfigKey("remote.log.storage.manager.class.path", STRING, None, MEDIUM,
              "Where that class is loaded from."),
    ConfigKey("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", MEDIUM,
              "Prefix of the settings handed to the remote storage class.", NonEmpty()),
    ConfigKey("remote.log.metadata.manager.class.name", STRING,
              "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", MEDIUM,
              "Class that remembers which segments are remote.", NonEmpty()),
    ConfigKey("remote.log.metadata.manager.class.path", STRING, None, MEDIUM,
              "Where that class is loaded from."),
    ConfigKey("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", MEDIUM,
              "Prefix of the settings handed to the remote metadata class.", NonEmpty()),
    ConfigKey("remote.log.metadata.manager.listener.name", STRING, None, MEDIUM,
              "Listener by which the remote metadata class reaches this cluster.", NonEmpty()),
    ConfigKey("remote.log.metadata.custom.metadata.max.bytes", INT, "128", LOW,
              "Most bytes of its own that a remote storage class may attach to a segment.", Range(0)),
    ConfigKey("remote.log.index.file.cache.total.size.bytes", LONG, "1073741824", LOW,
              "Disk space for indexes fetched from remote storage.", Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("remote.log.index.file.cache.ttl.ms", LONG, "900000", LOW,
              "How long an unused remote index stays on disk.", Range(-1), internal=True),
    ConfigKey("remote.log.manager.thread.pool.size", INT, "2", MEDIUM,
              "How many threads schedule the tiering of followers.", Range(1)),
    ConfigKey("remote.log.manager.copier.thread.pool.size", INT, "10", MEDIUM,
              "How many threads copy segments to remote storage.", Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("remote.log.manager.expiration.thread.pool.size", INT, "10", MEDIUM,
              "How many threads delete expired remote segments.", Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("remote.log.manager.follower.thread.pool.size", INT, "2", MEDIUM,
              "How many threads follow the tiering of other leaders.", Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("remote.log.manager.task.interval.ms", LONG, "30000", LOW,
              "How often tiering work runs.", Range(1)),
    ConfigKey("remote.log.manager.task.retry.backoff.ms", LONG, "500", LOW,
              "First pause after failed tiering work.", Range(1), internal=True),
    ConfigKey("remote.log.manager.task.retry.backoff.max.ms", LONG, "30000", LOW,
              "Longest pause after failed tiering work.", Range(1), internal=True),
    ConfigKey("remote.log.manager.task.retry.jitter", DOUBLE, "0.2", LOW,
              "Random share added to those pauses.", Range(0, 0.5), internal=True),
    ConfigKey("remote.log.manager.copy.max.bytes.per.second", LONG, "9223372036854775807", MEDIUM,
              "Upper bound on what is copied to remote storage.", Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("remote.log.manager.copy.quota.window.num", INT, "11", MEDIUM,
              "How many samples the copy quota is measured over.", Range(1)),
    ConfigKey("remote.log.manager.copy.quota.window.size.seconds", INT, "1", MEDIUM,
              "Length of one sample of the copy quota.", Range(1)),
    ConfigKey("remote.log.manager.fetch.max.bytes.per.second", LONG, "9223372036854775807", MEDIUM,
              "Upper bound on what is read from remote storage.", Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("remote.log.manager.fetch.quota.window.num", INT, "11", MEDIUM,
              "How many samples the remote read quota is measured over.", Range(1)),
    ConfigKey("remote.log.manager.fetch.quota.window.size.seconds", INT, "1", MEDIUM,
              "Length of one sample of the remote read quota.", Range(1)),
    ConfigKey("remote.log.reader.threads", INT, "10", MEDIUM,
              "How many threads read from remote storage.", Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("remote.log.reader.max.pending.tasks", INT, "100", MEDIUM,
              "How many remote reads may wait; more are refused.", Range(1)),
    ConfigKey("remote.fetch.max.wait.ms", INT, "500", MEDIUM,
              "How long a fetch waits for remote storage.", Range(1), update_mode=CLUSTER_WIDE),
    ConfigKey("remote.list.offsets.request.timeout.ms", LONG, "30000", MEDIUM,
              "How long a look-up of offsets waits for remote storage.", Range(1), update_mode=CLUSTER_WIDE),
)
# fmt: on
