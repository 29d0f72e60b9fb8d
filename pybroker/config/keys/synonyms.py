"""Which broker keys a topic key takes its default from, in Kafka's order."""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.config.keys.own import DURABILITY
from pybroker.values import Value

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000


class BrokerSynonym(Value):
    """A broker key that gives a topic key its default; its value times `factor` is in the topic key's unit."""

    name: str
    factor: int = 1


def _same(*names: str) -> dict[str, tuple[BrokerSynonym, ...]]:
    return {name: (BrokerSynonym(name),) for name in names}


def _prefixed(prefix: str, *names: str) -> dict[str, tuple[BrokerSynonym, ...]]:
    return {name: (BrokerSynonym(prefix + name),) for name in names}


#: For each topic key the broker keys behind it, the strongest first. A key that is not here has no broker key.
SYNONYMS: Mapping[str, tuple[BrokerSynonym, ...]] = {
    **_same("compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level"),
    **_same("min.insync.replicas", "unclean.leader.election.enable", DURABILITY.name),
    **_prefixed("log.", "cleanup.policy", "index.interval.bytes", "local.retention.bytes", "local.retention.ms"),
    **_prefixed("log.", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type"),
    **_prefixed("log.", "remote.copy.lag.bytes", "remote.copy.lag.ms"),
    **_prefixed("log.", "preallocate", "retention.bytes", "segment.bytes"),
    **_prefixed("log.cleaner.", "delete.retention.ms", "max.compaction.lag.ms", "min.compaction.lag.ms"),
    "file.delete.delay.ms": (BrokerSynonym("log.segment.delete.delay.ms"),),
    "flush.messages": (BrokerSynonym("log.flush.interval.messages"),),
    "flush.ms": (BrokerSynonym("log.flush.interval.ms"), BrokerSynonym("log.flush.scheduler.interval.ms")),
    "max.decompressed.message.bytes": (BrokerSynonym("max.decompressed.message.bytes"),),
    "max.message.bytes": (BrokerSynonym("message.max.bytes"),),
    "min.cleanable.dirty.ratio": (BrokerSynonym("log.cleaner.min.cleanable.ratio"),),
    "retention.ms": (
        BrokerSynonym("log.retention.ms"),
        BrokerSynonym("log.retention.minutes", _MS_PER_MINUTE),
        BrokerSynonym("log.retention.hours", _MS_PER_HOUR),
    ),
    "segment.index.bytes": (BrokerSynonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (BrokerSynonym("log.roll.jitter.ms"), BrokerSynonym("log.roll.jitter.hours", _MS_PER_HOUR)),
    "segment.ms": (BrokerSynonym("log.roll.ms"), BrokerSynonym("log.roll.hours", _MS_PER_HOUR)),
}
