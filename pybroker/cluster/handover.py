"""The metadata of a stopped cluster as its next controllers shall find them: all that there was, led by others. Pure.

The result is a snapshot in a later epoch and at a later offset than the log that it was made from. So nobody takes that
log for the beginning of what follows, whatever it has of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pybroker.metadata import features
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.eligible_leaders import min_insync_replicas_of_all
from pybroker.metadata.image import NO_LEADER, MetadataImage, Provenance, Voter
from pybroker.metadata.offline import Replayed
from pybroker.metadata.records import VersionedRecord
from pybroker.metadata.snapshot import voters_record
from pybroker.protocol import messages as m

#: Voters are in records since this level (KIP-853).
KRAFT_VERSION = 1
_ELIGIBLE_LEADER_REPLICAS = 1
_FENCED = 1


def to_quorum(before: Replayed, voters: Sequence[Voter], min_insync_replicas: int, now_ms: int) -> MetadataImage:
    """The metadata led by `voters`, with eligible leader replicas (KIP-966) kept account of.

    Every broker is fenced, and what it led has no leader until one has registered again. `min_insync_replicas` is what
    brokers had as their setting: a cluster with eligible leader replicas has it in its metadata, and there alone.
    """
    delta = MetadataDelta(before.image)
    for record, version in [*_fencing(before.image), *_eligible_leaders(before.image, min_insync_replicas)]:
        delta.replay(record, version)
    return _led_by(delta, before, voters, now_ms)


def to_single(before: Replayed, voter: Voter, now_ms: int) -> MetadataImage:
    """The metadata led by one node alone, which is the only broker."""
    delta = MetadataDelta(before.image)
    for broker in before.image.cluster.brokers.values():
        if broker.id != voter.id:
            delta.replay(m.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch), 0)
    for record, version in _fencing(before.image):
        if not isinstance(record, m.BrokerRegistrationChangeRecord) or record.broker_id == voter.id:
            delta.replay(record, version)
    return _led_by(delta, before, [voter], now_ms)


def _led_by(delta: MetadataDelta, before: Replayed, voters: Sequence[Voter], now_ms: int) -> MetadataImage:
    delta.replay_control(m.KRaftVersionRecord(kraft_version=KRAFT_VERSION))
    delta.replay_control(voters_record(voters))
    image = delta.apply(Provenance(before.image.provenance.end_offset + 1, before.epoch + 1, now_ms))
    # Controllers register when they start; no record takes the registration of one away.
    return image.replace(
        cluster=image.cluster.replace(controllers={}),
        quorum=image.quorum.replace(leader_id=NO_LEADER),
    )


def _fencing(image: MetadataImage) -> Iterator[VersionedRecord]:
    for broker in image.cluster.brokers.values():
        if not broker.fenced:
            record = m.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_FENCED)
            yield VersionedRecord(record, 0)
    for topic in image.topics.by_id.values():
        for index, partition in topic.partitions.items():
            if partition.leader != NO_LEADER:
                change = m.PartitionChangeRecord(topic_id=topic.id, partition_id=index, leader=NO_LEADER)
                yield VersionedRecord(change, 0)


def _eligible_leaders(image: MetadataImage, min_insync_replicas: int) -> Iterator[VersionedRecord]:
    """The records that Apache Kafka's controller writes when that feature is finalised."""
    level = m.FeatureLevelRecord(
        name=features.ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=_ELIGIBLE_LEADER_REPLICAS
    )
    yield VersionedRecord(level, 0)
    yield from min_insync_replicas_of_all(image, min_insync_replicas)
