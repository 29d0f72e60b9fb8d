"""AlterPartitionReassignments (45): replicas stay on the brokers they are on, and anything else is refused (KIP-455).

Apache Kafka's reassignment tool asks for that, with the assignment there is, before it moves replicas between log dirs.
"""

from __future__ import annotations

from pybroker.metadata.image import MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

_Topic = m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = m.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.AlterPartitionReassignmentsRequest
) -> m.AlterPartitionReassignmentsResponse:
    image = broker.metadata.image
    answer = m.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        # As Kafka, which answers an empty request before it looks at anything.
        error_message=None if request.topics else "",
    )
    async for topic in in_slices(request.topics):
        rows = [
            _row(image, topic.name, each.partition_index, each.replicas) async for each in in_slices(topic.partitions)
        ]
        answer.responses.append(_Topic(name=topic.name, partitions=rows))
    return answer


def _row(
    image: MetadataImage, topic: str, index: int, replicas: list[int] | None
) -> m.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse:
    try:
        _check(image, topic, index, replicas)
    except KafkaError as failure:
        return _Partition(partition_index=index, error_code=failure.code, error_message=failure.message)
    return _Partition(partition_index=index, error_message=None)


def _check(image: MetadataImage, name: str, index: int, replicas: list[int] | None) -> None:
    topic = image.topics.by_name.get(name)
    if topic is None or index not in topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of a topic {name}")
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of this partition is under way")
    strangers = [each for each in replicas if each not in image.cluster.brokers]
    if not replicas or len(set(replicas)) != len(replicas) or strangers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the list of replicas {replicas} is empty, names a broker twice or one that is not registered",
        )
    if set(replicas) != set(topic.partitions[index].replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "this broker moves replicas between its log dirs, not to other brokers",
        )


API = Api(m.AlterPartitionReassignmentsRequest, 0, 1, handle)
