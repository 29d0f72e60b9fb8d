"""ListPartitionReassignments (46): none is ever under way, because this broker leads no others (KIP-455)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import SteadyDict, drop, in_slices

_Topic = m.ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Partition = m.ListPartitionReassignmentsResponse.OngoingPartitionReassignment


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    # A metadata log that Apache Kafka began may have some in it, which wait for brokers that are not here.
    wanted: SteadyDict[tuple[str, int], None] | None = None
    if request.topics is not None:
        wanted = SteadyDict()
        async for asked in in_slices(request.topics):
            async for index in in_slices(asked.partition_indexes):
                wanted[asked.name, index] = None
    answer = m.ListPartitionReassignmentsResponse(error_message=None)
    async for name, topic in in_slices(broker.metadata.image.topics.by_name.items()):
        rows = [
            _Partition(
                partition_index=index,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding_replicas),
                removing_replicas=list(each.removing_replicas),
            )
            for index, each in topic.partitions.items()
            if (wanted is None or (name, index) in wanted) and (each.adding_replicas or each.removing_replicas)
        ]
        if rows:
            answer.topics.append(_Topic(name=name, partitions=rows))
    if wanted is not None:
        await drop(wanted)
    return answer


API = Api(m.ListPartitionReassignmentsRequest, 0, 0, handle)
