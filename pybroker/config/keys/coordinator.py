"""Kafka's configuration keys for transactions and the share coordinator.

Names, types, defaults and bounds are those of the reference Apache Kafka; the tests hold them against its jars.
"""

from __future__ import annotations

from pybroker.config.definition import ConfigKey, ConfigType, Importance, Range, UpdateMode

BOOLEAN = ConfigType.BOOLEAN
INT = ConfigType.INT
SHORT = ConfigType.SHORT
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

# A table reads best with one key per row.
# fmt: off
COORDINATOR_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("transaction.max.timeout.ms", INT, "900000", HIGH,
              "Longest transaction timeout that a producer may ask for.", Range(1)),
    ConfigKey("transactional.id.expiration.ms", INT, "604800000", HIGH,
              "How long an idle transactional id is remembered.", Range(1)),
    ConfigKey("transaction.state.log.num.partitions", INT, "50", HIGH,
              "How many partitions the transaction topic gets; not to be changed once it exists.", Range(1)),
    ConfigKey("transaction.state.log.replication.factor", SHORT, "3", HIGH,
              "How many replicas the transaction topic gets.", Range(1)),
    ConfigKey("transaction.state.log.min.isr", INT, "2", HIGH,
              "How many replicas of the transaction topic must be in sync for a write.", Range(1)),
    ConfigKey("transaction.state.log.segment.bytes", INT, "104857600", HIGH,
              "Segment size of the transaction topic.", Range(1)),
    ConfigKey("transaction.state.log.load.buffer.size", INT, "5242880", HIGH,
              "Bytes read at a time when a coordinator loads a partition of the transaction topic.", Range(1)),
    ConfigKey("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000", LOW,
              "How often transactions that ran out of time are aborted.", Range(1)),
    ConfigKey("transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", LOW,
              "How often expired transactional ids are removed.", Range(1)),
    ConfigKey("transaction.partition.verification.enable", BOOLEAN, "true", LOW,
              "Whether a partition asks the coordinator that a transaction is open before it appends to it.",
              update_mode=CLUSTER_WIDE, honoured=True),
    ConfigKey("transaction.two.phase.commit.enable", BOOLEAN, "false", LOW,
              "Whether transactions may be prepared for an outside coordinator."),
    ConfigKey("add.partitions.to.txn.retry.backoff.ms", INT, "20", HIGH,
              "Pause before the broker retries to add a partition to a transaction.", Range(1), honoured=True),
    ConfigKey("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", HIGH,
              "Longest time the broker goes on retrying to add a partition to a transaction.", Range(0),
              honoured=True),
    ConfigKey("share.coordinator.state.topic.num.partitions", INT, "50", HIGH,
              "How many partitions the share state topic gets; not to be changed once it exists.", Range(1)),
    ConfigKey("share.coordinator.state.topic.replication.factor", SHORT, "3", HIGH,
              "How many replicas the share state topic gets.", Range(1)),
    ConfigKey("share.coordinator.state.topic.min.isr", SHORT, "2", HIGH,
              "How many replicas of the share state topic must be in sync for a write.", Range(1)),
    ConfigKey("share.coordinator.state.topic.segment.bytes", INT, "104857600", HIGH,
              "Segment size of the share state topic.", Range(1)),
    ConfigKey("share.coordinator.state.topic.compression.codec", INT, "0", HIGH,
              "Codec id in which the share state topic is stored: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    ConfigKey("share.coordinator.state.topic.prune.interval.ms", INT, "300000", LOW,
              "How often records of the share state topic that are no longer needed are removed.",
              Range(1), internal=True),
    ConfigKey("share.coordinator.load.buffer.size", INT, "5242880", HIGH,
              "Bytes read at a time when a coordinator loads a partition of the share state topic.", Range(1)),
    ConfigKey("share.coordinator.snapshot.update.records.per.snapshot", INT, "500", MEDIUM,
              "How many update records may follow a snapshot of share state before the next snapshot.", Range(0, 500)),
    ConfigKey("share.coordinator.cold.partition.snapshot.interval.ms", INT, "300000", LOW,
              "How often share partitions without updates get a snapshot.", Range(1), internal=True),
    ConfigKey("share.coordinator.threads", INT, "1", MEDIUM,
              "How many threads run share coordinator work.", Range(1)),
    ConfigKey("share.coordinator.write.timeout.ms", INT, "5000", HIGH,
              "How long a write of share state waits for the replicas.", Range(1)),
    ConfigKey("share.coordinator.append.linger.ms", INT, "-1", MEDIUM,
              "How long the share coordinator gathers records before it appends them; -1 adapts to the load.",
              Range(-1)),
    ConfigKey("share.coordinator.cached.buffer.max.bytes", INT, "1048588", MEDIUM,
              "Largest append buffer that the share coordinator keeps for its next use.",
              Range(524288), update_mode=CLUSTER_WIDE),
)
# fmt: on
