"""ElectLeaders (KIP-183, KIP-460). Pure.

This broker leads what it may lead from its start on, so a preferred election finds nothing to do. An unclean one can
have something to do in metadata that another cluster has left: a partition of several replicas whose last one in sync
is not running here.
"""

from __future__ import annotations

from pybroker.controller.state import MAX_RECORDS_PER_OPERATION, ControllerResult, ControllerState, Refusal
from pybroker.metadata.image import NO_LEADER, PartitionRegistration, TopicImage, is_online
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

_PREFERRED, _UNCLEAN = 0, 1

_Topic = m.ElectLeadersResponse.ReplicaElectionResult
_Partition = m.ElectLeadersResponse.PartitionResult


def elect_leaders(state: ControllerState, request: m.ElectLeadersRequest) -> ControllerResult[m.ElectLeadersResponse]:
    """Elect a leader for each partition named, or for all when the request names none: then partitions that need no
    election get no row."""
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ControllerResult(_unknown_type(request))
    is_unclean = request.election_type == _UNCLEAN
    topics = state.image.topics.by_name
    if request.topic_partitions is None:
        wanted = [(name, list(topic.partitions)) for name, topic in topics.items()]
    else:
        wanted = [(each.topic, each.partitions) for each in request.topic_partitions]
    answer = m.ElectLeadersResponse()
    changes: dict[tuple[bytes, int], m.PartitionChangeRecord] = {}
    for name, indexes in wanted:
        row = _Topic(topic=name)
        for index in indexes:
            try:
                change = _election(state, name, topics.get(name), index, is_unclean)
                if len(changes) == MAX_RECORDS_PER_OPERATION:
                    raise Refusal(
                        ErrorCode.POLICY_VIOLATION,
                        f"One request can elect at most {MAX_RECORDS_PER_OPERATION} leaders; send several requests",
                    )
            except Refusal as refusal:
                if request.topic_partitions is not None or refusal.code is not ErrorCode.ELECTION_NOT_NEEDED:
                    error = _Partition(partition_id=index, error_code=refusal.code, error_message=refusal.message)
                    row.partition_result.append(error)
                continue
            changes[change.topic_id, index] = change
            row.partition_result.append(_Partition(partition_id=index, error_message=None))
        answer.replica_election_results.append(row)
    return ControllerResult(answer, [state.versioned(change) for change in changes.values()])


def _unknown_type(request: m.ElectLeadersRequest) -> m.ElectLeadersResponse:
    code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
    rows = [
        _Topic(
            topic=topic.topic,
            partition_result=[
                _Partition(partition_id=index, error_code=code, error_message=message) for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return m.ElectLeadersResponse(error_code=code, replica_election_results=rows)


def _election(
    state: ControllerState, name: str, topic: TopicImage | None, index: int, is_unclean: bool
) -> m.PartitionChangeRecord:
    if topic is None or index not in topic.partitions:
        what = f"topic as {name}" if topic is None else f"partition as {name}-{index}"
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what}")
    partition = topic.partitions[index]
    has_leader = partition.leader != NO_LEADER if is_unclean else partition.leader == partition.replicas[0]
    if has_leader:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    if not is_unclean:
        raise Refusal(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            "The preferred leader was not available. "
            f"Broker {partition.replicas[0]} is not running or its log dir is out of service",
        )
    if not _can_lead(state, partition):
        raise Refusal(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available. "
            f"Broker {state.node_id} has no replica of the partition in a log dir that is in service",
        )
    change = m.PartitionChangeRecord(topic_id=topic.id, partition_id=index, leader=state.node_id, isr=[state.node_id])
    if partition.eligible_leader_replicas:
        change.eligible_leader_replicas = []
    if partition.last_known_elr:
        change.last_known_elr = []
    return change


def _can_lead(state: ControllerState, partition: PartitionRegistration) -> bool:
    broker = state.image.cluster.brokers.get(state.node_id)
    return (
        broker is not None
        and not broker.fenced
        and state.node_id in partition.replicas
        and is_online(broker.directories, partition.directory(state.node_id))
    )
