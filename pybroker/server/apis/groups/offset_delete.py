"""OffsetDelete (47): forget committed offsets of topics that no member of the group reads (KIP-496)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.OffsetDeleteRequest
) -> m.OffsetDeleteResponse:
    known = broker.metadata.image.topics.by_name
    existing: list[tuple[str, list[int]]] = []
    async for topic in in_slices(request.topics):
        image = known.get(topic.name)
        indexes = [partition.partition_index async for partition in in_slices(topic.partitions)]
        if image is not None:
            existing.append((topic.name, [index async for index in in_slices(indexes) if index in image.partitions]))
    try:
        results, committed = broker.groups.delete_offsets(request.group_id, existing)
        error = ErrorCode.NONE if committed is None else await committed
    except KafkaError as failure:
        error = failure.code
    if error is not ErrorCode.NONE:
        return m.OffsetDeleteResponse(error_code=error)
    return m.OffsetDeleteResponse(
        topics=[
            m.OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    m.OffsetDeleteResponse.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=results.get(
                            (topic.name, partition.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    async for partition in in_slices(topic.partitions)
                ],
            )
            async for topic in in_slices(request.topics)
        ]
    )


API = Api(m.OffsetDeleteRequest, 0, 0, handle)
