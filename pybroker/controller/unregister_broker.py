"""UnregisterBroker (KIP-631): forget a broker that will not come back. Pure.

Metadata that a larger cluster has left names brokers that are not running here. They count for what the cluster serves,
and as replicas in sync; whoever is unregistered does so no more, and stays a replica of its partitions.
"""

from __future__ import annotations

from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.metadata.image import NO_LEADER, PartitionRegistration
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode


def unregister_broker(
    state: ControllerState, request: m.UnregisterBrokerRequest
) -> ControllerResult[m.UnregisterBrokerResponse]:
    """End the registration of a broker, and its part in leading. This broker, which is the controller too, stays."""
    broker = state.image.cluster.brokers.get(request.broker_id)
    if broker is None:
        return _refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {request.broker_id} is registered")
    if broker.id == state.node_id:
        return _refused(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker.id} runs, and is the controller that would have to forget it: to end it, stop it",
        )
    records = [
        state.versioned(change)
        for topic in state.image.topics.by_id.values()
        for index, partition in topic.partitions.items()
        if (change := _removal(broker.id, topic.id, index, partition)) is not None
    ]
    end = m.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    # Apache Kafka has an empty text there, too.
    return ControllerResult(m.UnregisterBrokerResponse(error_message=""), [*records, state.versioned(end)])


def _refused(code: ErrorCode, message: str) -> ControllerResult[m.UnregisterBrokerResponse]:
    return ControllerResult(m.UnregisterBrokerResponse(error_code=code, error_message=message))


def _removal(
    broker_id: int, topic_id: bytes, index: int, partition: PartitionRegistration
) -> m.PartitionChangeRecord | None:
    """The change for a partition; None when nothing changes. A running replica in sync leads already, so nobody takes
    over from a leader that goes. The last replica in sync stays that, because it alone has all the records."""
    isr = [each for each in partition.isr if each != broker_id]
    eligible = [each for each in partition.eligible_leader_replicas if each != broker_id]
    change = m.PartitionChangeRecord(topic_id=topic_id, partition_id=index)
    if partition.leader == broker_id:
        change.leader = NO_LEADER
    if isr and len(isr) < len(partition.isr):
        change.isr = isr
    if len(eligible) < len(partition.eligible_leader_replicas):
        change.eligible_leader_replicas = eligible
    is_changed = change.leader == NO_LEADER or change.isr is not None or change.eligible_leader_replicas is not None
    return change if is_changed else None
