"""This broker's own registration: at start (KIP-631) and its end at a clean stop. Pure.

There is no heartbeat between a controller and a broker in one process: a broker is unfenced with its registration, and
leads at once what it may lead. Every start is an election of each partition led here, so that leader epochs (KIP-101)
tell what was written before a crash from what came after. Partitions in a log dir that is out of service have no leader
(KIP-858).
"""

from __future__ import annotations

from collections.abc import Sequence

from pybroker.controller import eligible_leaders
from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.metadata import features
from pybroker.metadata.image import NO_LEADER, PartitionRegistration, is_online
from pybroker.metadata.records import VersionedRecord
from pybroker.metadata.registration import Registration
from pybroker.protocol import messages as m

_FENCED, _UNFENCED = 1, -1
_RECOVERED, _RECOVERING = 0, 1
_DIRECTORIES_SINCE_VERSION = 3
_CORDONED_SINCE_VERSION = 4
_CHANGED_DIRECTORIES_SINCE_VERSION = 2
_CHANGED_CORDONED_SINCE_VERSION = 3


def register_broker(state: ControllerState, registration: Registration) -> ControllerResult[int]:
    """Register and unfence this broker and elect it where it can lead. The response is its broker epoch."""
    epoch = state.next_offset
    version = features.record_version("RegisterBrokerRecord", state.image.metadata_version)
    record = m.RegisterBrokerRecord(
        broker_id=state.node_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            m.RegisterBrokerRecord.BrokerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in registration.endpoints
        ],
        features=[
            m.RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features.SUPPORTED.items()
        ],
        rack=registration.rack,
        fenced=True,
        log_dirs=list(registration.directories) if version >= _DIRECTORIES_SINCE_VERSION else [],
        cordoned_log_dirs=list(registration.cordoned_directories) if version >= _CORDONED_SINCE_VERSION else None,
    )
    unfence = m.BrokerRegistrationChangeRecord(broker_id=state.node_id, broker_epoch=epoch, fenced=_UNFENCED)
    records = [VersionedRecord(record, version), VersionedRecord(unfence, 0)]
    for topic in state.image.topics.by_id.values():
        for index, partition in topic.partitions.items():
            is_here = is_online(registration.directories, partition.directory(state.node_id))
            change = (_election if is_here else _resignation)(state.node_id, topic.id, index, partition)
            if change is not None:
                records.append(state.versioned(change))
    return ControllerResult(epoch, records)


def _resignation(
    node_id: int, topic_id: bytes, index: int, partition: PartitionRegistration
) -> m.PartitionChangeRecord | None:
    """The end of this broker's leadership, with nobody to follow: the last replica in sync stays in sync."""
    if partition.leader != node_id:
        return None
    return m.PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=NO_LEADER)


def _election(
    node_id: int, topic_id: bytes, index: int, partition: PartitionRegistration
) -> m.PartitionChangeRecord | None:
    """This broker's election, if it is the leader, in sync, eligible (KIP-966), or the only replica there is."""
    is_alone = partition.replicas == (node_id,)
    is_eligible = node_id in partition.isr or node_id in partition.eligible_leader_replicas
    if not is_alone and not is_eligible:
        return None
    change = m.PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=node_id)
    # Other replicas in sync are not running here; they join again when they are.
    if partition.isr != (node_id,):
        change.isr = [node_id]
    if partition.eligible_leader_replicas:
        change.eligible_leader_replicas = [each for each in partition.eligible_leader_replicas if each != node_id]
    if partition.last_known_elr:
        change.last_known_elr = []
    if partition.leader_recovery_state == _RECOVERING and is_alone:
        change.leader_recovery_state = _RECOVERED
    return change


def change_directories(
    state: ControllerState, directories: Sequence[bytes], cordoned: Sequence[bytes]
) -> ControllerResult[None]:
    """This broker's log dirs in service, which must be some, and those of them that get no new partitions (KIP-858,
    KIP-1066). Partitions that it leads elsewhere lose their leader."""
    assert directories
    broker = state.image.cluster.brokers.get(state.node_id)
    version = features.record_version("BrokerRegistrationChangeRecord", state.image.metadata_version)
    if broker is None or version < _CHANGED_DIRECTORIES_SINCE_VERSION:
        return ControllerResult(None)
    change = m.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    if set(directories) != set(broker.directories):
        change.log_dirs = list(directories)
    if version >= _CHANGED_CORDONED_SINCE_VERSION and set(cordoned) != set(broker.cordoned_directories or ()):
        change.cordoned_log_dirs = list(cordoned)
    if not change.log_dirs and change.cordoned_log_dirs is None:
        return ControllerResult(None)
    resignations = [
        state.versioned(resignation)
        for topic in state.image.topics.by_id.values()
        for index, partition in topic.partitions.items()
        if not is_online(directories, partition.directory(broker.id))
        and (resignation := _resignation(broker.id, topic.id, index, partition)) is not None
    ]
    return ControllerResult(None, [*resignations, VersionedRecord(change, version)])


def fence_broker(state: ControllerState) -> ControllerResult[None]:
    """The end of this broker's registration at a clean stop: without it Apache Kafka takes the broker for still
    running.
    """
    broker = state.image.cluster.brokers.get(state.node_id)
    if broker is None or broker.fenced:
        return ControllerResult(None)
    change = m.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_FENCED)
    return ControllerResult(None, [VersionedRecord(change, 0)])


def first_records(state: ControllerState, bootstrap: Sequence[VersionedRecord]) -> list[VersionedRecord]:
    """The first records of a new cluster's metadata, as Kafka writes them: a transaction, where the level has them
    (KIP-868). With eligible leader replicas the cluster has one min.insync.replicas from the start (KIP-966)."""
    levels = {
        each.record.name: each.record.feature_level
        for each in bootstrap
        if isinstance(each.record, m.FeatureLevelRecord)
    }
    records = list(bootstrap)
    if levels.get(features.ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        records += eligible_leaders.one_number(state)
    if levels.get(features.METADATA_VERSION, 0) < features.TRANSACTIONS_LEVEL:
        return records
    begin = VersionedRecord(m.BeginTransactionRecord(name="Bootstrap records"), 0)
    return [begin, *records, VersionedRecord(m.EndTransactionRecord(), 0)]
