"""FindCoordinator (10): which broker coordinates a group, or transactions of a transactional id.

The first one to ask for a group starts the creation of `__consumer_offsets`, and is told, as by Apache Kafka, that
there is no coordinator yet. Transactions are coordinated by other brokers of the cluster alone, those that lead
`__transaction_state`, which is theirs to make.
"""

from __future__ import annotations

from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC
from pybroker.coordinator.group.partition import group_partition
from pybroker.metadata.image import TopicImage
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.errors import ErrorCode
from pybroker.server.add_partitions_to_txn_manager import TRANSACTION_STATE_TOPIC
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

#: From this version on a request asks for several keys (KIP-699).
_KEYS_VERSION = 4
_GROUP_KEY_TYPE = 0
_TRANSACTION_KEY_TYPE = 1


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.FindCoordinatorRequest
) -> m.FindCoordinatorResponse:
    if context.api_version >= _KEYS_VERSION:
        found = [
            await _find(broker, context, request.key_type, key) async for key in in_slices(request.coordinator_keys, 4)
        ]
        return m.FindCoordinatorResponse(coordinators=found)
    one = await _find(broker, context, request.key_type, request.key)
    return m.FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


async def _find(
    broker: BrokerServices, context: RequestContext, key_type: int, key: str
) -> m.FindCoordinatorResponse.Coordinator:
    if key_type == _TRANSACTION_KEY_TYPE:
        return _find_of_transactions(broker, context, key)
    if key_type != _GROUP_KEY_TYPE:
        return _refused(
            key, ErrorCode.INVALID_REQUEST, f"Coordinators of type {key_type} are not served; 0 is a group."
        )
    topic = broker.metadata.image.topics.by_name.get(OFFSETS_TOPIC)
    if topic is None:
        # In this broker's own name: no client's quota keeps others from their groups.
        is_under_way = broker.topic_creation.begin([OFFSETS_TOPIC], Origin())
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, _why_not_yet(broker, is_under_way))
    if OFFSETS_TOPIC in broker.topic_creation and broker.replicas.is_opening(topic):
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, _why_not_yet(broker, True))
    return _leader(broker, context, key, topic, broker.groups.partition_for(key))


def _find_of_transactions(
    broker: BrokerServices, context: RequestContext, key: str
) -> m.FindCoordinatorResponse.Coordinator:
    topic = broker.metadata.image.topics.by_name.get(TRANSACTION_STATE_TOPIC)
    if topic is None:
        why = (
            f"This broker coordinates no transactions, and nobody has made {TRANSACTION_STATE_TOPIC} on brokers that "
            "do."
        )
        return _refused(key, ErrorCode.INVALID_REQUEST, why)
    # Kafka hashes both kinds of keys alike.
    index = group_partition(key, len(topic.partitions))
    found = _leader(broker, context, key, topic, index)
    if found.node_id == broker.config.get_int("node.id"):
        why = (
            f"This broker leads {TRANSACTION_STATE_TOPIC}-{index} and coordinates no transactions: move it to one that "
            "does."
        )
        return _refused(key, ErrorCode.INVALID_REQUEST, why)
    return found


def _leader(
    broker: BrokerServices, context: RequestContext, key: str, topic: TopicImage, index: int
) -> m.FindCoordinatorResponse.Coordinator:
    image = broker.metadata.image
    partition = topic.partitions.get(index)
    leader = None if partition is None else image.cluster.brokers.get(partition.leader)
    endpoint = None if leader is None or leader.fenced else leader.endpoint(context.listener)
    if leader is None or endpoint is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic.name}-{index} has no leader.")
    return m.FindCoordinatorResponse.Coordinator(key=key, node_id=leader.id, host=endpoint.host, port=endpoint.port)


def _refused(key: str, error: ErrorCode, message: str) -> m.FindCoordinatorResponse.Coordinator:
    return m.FindCoordinatorResponse.Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message
    )


def _why_not_yet(broker: BrokerServices, is_under_way: bool) -> str:
    failure = broker.topic_creation.failure(OFFSETS_TOPIC)
    if failure is None and not is_under_way:
        return f"{OFFSETS_TOPIC} is not there, and its creation could not begin; ask again."
    if failure is None:
        return f"{OFFSETS_TOPIC} is being created."
    return f"{OFFSETS_TOPIC} cannot be created from the offsets.topic.* settings: {failure}"


API = Api(m.FindCoordinatorRequest, 0, 6, handle)
