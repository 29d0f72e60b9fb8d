"""ListOffsets (2): the first offset at or after a time, the earliest, the latest, that of the largest timestamp."""

from __future__ import annotations

import asyncio

from pybroker.native.partition import READ_COMMITTED, READ_UNCOMMITTED, PartitionPosition
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.server.in_turns import in_turns
from pybroker.turns import SteadyDict, drop, in_slices

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

#: The version each special timestamp came with (KIP-734, KIP-405, KIP-1005, KIP-1023).
_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
#: From this version on an answer names the leader epoch of the offset (KIP-320).
_LEADER_EPOCH_VERSION = 4
#: Before this version clients do not know OFFSET_NOT_AVAILABLE (KIP-207).
_NOT_AVAILABLE_VERSION = 5
_CONSUMER = -1
_NOWHERE = PartitionPosition(-1, -1, -1)

Wanted = m.ListOffsetsRequest.ListOffsetsPartition
Row = m.ListOffsetsResponse.ListOffsetsPartitionResponse
Topic = m.ListOffsetsResponse.ListOffsetsTopicResponse


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.ListOffsetsRequest
) -> m.ListOffsetsResponse:
    repeated = await _repeated(request)
    topics = []
    waiting = []
    # A request has one look-up under way, so that one with many partitions does not hold up those of others.
    turn = asyncio.Lock()
    async for topic in in_slices(request.topics):
        rows = []
        async for wanted in in_slices(topic.partitions):
            row = Row(partition_index=wanted.partition_index, timestamp=-1, offset=-1, leader_epoch=-1)
            rows.append(row)
            try:
                if (topic.name, wanted.partition_index) in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                position = _at_once(broker, context, request, topic.name, wanted)
            except KafkaError as failure:
                row.error_code = failure.code
                continue
            if position is None:
                waiting.append(_look_up(broker, request, topic.name, wanted, row, turn))
            else:
                _fill(row, position)
        topics.append(Topic(name=topic.name, partitions=rows))
    if waiting:
        await in_turns(waiting)
    await drop(repeated)
    await _for_older_clients(context.api_version, topics)
    return m.ListOffsetsResponse(topics=topics)


async def _repeated(request: m.ListOffsetsRequest) -> SteadyDict[tuple[str, int], None]:
    """The partitions that the request names more than once."""
    seen: SteadyDict[tuple[str, int], None] = SteadyDict()
    repeated: SteadyDict[tuple[str, int], None] = SteadyDict()
    async for topic in in_slices(request.topics):
        async for each in in_slices(topic.partitions):
            key = (topic.name, each.partition_index)
            (repeated if key in seen else seen)[key] = None
    await drop(seen)
    return repeated


async def _for_older_clients(version: int, topics: list[m.ListOffsetsResponse.ListOffsetsTopicResponse]) -> None:
    if version >= _NOT_AVAILABLE_VERSION:
        return
    async for topic in in_slices(topics):
        async for row in in_slices(topic.partitions):
            if version < _LEADER_EPOCH_VERSION:
                row.leader_epoch = -1
            if row.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
                row.error_code = ErrorCode.LEADER_NOT_AVAILABLE


def _isolation(request: m.ListOffsetsRequest) -> int:
    return READ_COMMITTED if request.isolation_level == 1 else READ_UNCOMMITTED


def _at_once(
    broker: BrokerServices,
    context: RequestContext,
    request: m.ListOffsetsRequest,
    topic: str,
    wanted: m.ListOffsetsRequest.ListOffsetsPartition,
) -> PartitionPosition | None:
    """The answer where no file has to be read; None where one has. KafkaError."""
    timestamp_ms, partition = wanted.timestamp, wanted.partition_index
    if timestamp_ms < 0 and context.api_version < _SINCE_VERSION.get(timestamp_ms, context.api_version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    replicas = broker.replicas
    replicas.check_epoch(topic, partition, wanted.current_leader_epoch)
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOWHERE  # nothing is tiered
    if timestamp_ms == LATEST and request.replica_id != _CONSUMER:
        # Followers ask where the log ends after an unclean election, before a high watermark says anything of it.
        state = replicas.state(topic, partition)
        return PartitionPosition(state.log_end_offset, -1, state.leader_epoch)
    if timestamp_ms in (LATEST, EARLIEST, EARLIEST_LOCAL):
        # Without tiering the whole log is local.
        asked_ms = EARLIEST if timestamp_ms == EARLIEST_LOCAL else timestamp_ms
        return replicas.list_offset_now(topic, partition, asked_ms, _isolation(request))
    return None


async def _look_up(
    broker: BrokerServices,
    request: m.ListOffsetsRequest,
    topic: str,
    wanted: m.ListOffsetsRequest.ListOffsetsPartition,
    row: m.ListOffsetsResponse.ListOffsetsPartitionResponse,
    turn: asyncio.Lock,
) -> None:
    try:
        async with turn:
            found = await broker.replicas.list_offset(
                topic, wanted.partition_index, wanted.timestamp, _isolation(request)
            )
        _fill(row, found)
    except KafkaError as failure:
        row.error_code = failure.code


def _fill(row: m.ListOffsetsResponse.ListOffsetsPartitionResponse, position: PartitionPosition) -> None:
    row.offset, row.timestamp, row.leader_epoch = position


API = Api(m.ListOffsetsRequest, 1, 11, handle)
