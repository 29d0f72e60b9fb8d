"""WriteTxnMarkers (27): end transactions in partitions led here, as their coordinator or an administrator says.

The marker is the end: it moves the last stable offset, and an abort goes to the transaction index. In
`__consumer_offsets` it makes the offsets committed in the transaction count, or drops them.
"""

from __future__ import annotations

from functools import partial

from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC
from pybroker.protocol import messages as m
from pybroker.protocol.control_records import end_transaction_marker
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.server.in_turns import in_turns
from pybroker.turns import SteadyDict, drop, in_slices

Marker = m.WriteTxnMarkersRequest.WritableTxnMarker
_Topics = dict[str, dict[int, ErrorCode]]
_Result = m.WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = m.WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_PartitionResult = m.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult

#: The error of a group coordinator for a partition that it does not hold; transaction coordinators know the other one.
_AS_LEADER = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.WriteTxnMarkersRequest
) -> m.WriteTxnMarkersResponse:
    # As in Kafka, whatever the request repeats, a marker is written once to each partition, and there is one row per
    # producer and partition.
    wanted: SteadyDict[tuple[int, str, int], m.WriteTxnMarkersRequest.WritableTxnMarker] = SteadyDict()
    async for number, marker in in_slices(enumerate(request.markers)):
        async for topic in in_slices(marker.topics):
            async for index in in_slices(topic.partition_indexes):
                wanted[number, topic.name, index] = marker
    errors = await in_turns(_write(broker, marker, topic, index) for (_, topic, index), marker in wanted.items())
    results: dict[int, _Topics] = {marker.producer_id: {} async for marker in in_slices(request.markers)}
    async for ((_, name, index), marker), error in in_slices(zip(wanted.items(), errors, strict=True)):
        results[marker.producer_id].setdefault(name, {})[index] = error
    rows = [await _result(producer_id, topics) async for producer_id, topics in in_slices(results.items())]
    await drop(wanted)
    await drop(results)
    return m.WriteTxnMarkersResponse(markers=rows)


async def _result(producer_id: int, topics: _Topics) -> m.WriteTxnMarkersResponse.WritableTxnMarkerResult:
    return _Result(
        producer_id=producer_id,
        topics=[
            _TopicResult(
                name=name,
                partitions=[
                    _PartitionResult(partition_index=index, error_code=error)
                    async for index, error in in_slices(rows.items())
                ],
            )
            async for name, rows in in_slices(topics.items())
        ],
    )


async def _write(
    broker: BrokerServices, marker: m.WriteTxnMarkersRequest.WritableTxnMarker, topic: str, partition: int
) -> ErrorCode:
    """Append the marker to one partition; how that ended."""
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        return ErrorCode.INVALID_REQUEST
    committed = marker.transaction_result
    batch = end_transaction_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        commit=committed,
        timestamp_ms=broker.clock.wall_ms(),
    )
    append = partial(broker.replicas.append_marker, topic, partition, batch, marker.transaction_version)
    try:
        broker.replicas.state(topic, partition)
        if topic == OFFSETS_TOPIC:
            await broker.groups.end_transaction(partition, marker.producer_id, committed, append)
        else:
            await append()
    except KafkaError as failure:
        return _AS_LEADER.get(failure.code, failure.code) if topic == OFFSETS_TOPIC else failure.code
    return ErrorCode.NONE


API = Api(m.WriteTxnMarkersRequest, 1, 2, handle)
