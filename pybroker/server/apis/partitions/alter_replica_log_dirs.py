"""AlterReplicaLogDirs (34): move replicas to other log dirs of this broker (KIP-113). Answered when the moves begin."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import SteadyDict, drop, in_slices

_Topic = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Partition = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.AlterReplicaLogDirsRequest
) -> m.AlterReplicaLogDirsResponse:
    # As in Kafka, of a partition that the request repeats the last dir counts, and there is one row of it.
    wanted: SteadyDict[tuple[str, int], str] = SteadyDict()
    async for log_dir in in_slices(request.dirs):
        async for topic in in_slices(log_dir.topics):
            async for index in in_slices(topic.partitions):
                wanted[topic.name, index] = log_dir.path
    rows: SteadyDict[str, list[m.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]] = SteadyDict()
    async for (name, index), path in in_slices(wanted.items()):
        code = await _move(broker, name, index, path)
        if name not in rows:
            rows[name] = []
        rows[name].append(_Partition(partition_index=index, error_code=code))
    results = [_Topic(topic_name=name, partitions=partitions) async for name, partitions in in_slices(rows.items())]
    await drop(wanted)
    await drop(rows)
    return m.AlterReplicaLogDirsResponse(results=results)


async def _move(broker: BrokerServices, topic: str, index: int, path: str) -> ErrorCode:
    try:
        broker.mover.check_log_dir(path)
        broker.replicas.check_held(topic, index)
        await broker.mover.request((topic, index), path)
    except KafkaError as failure:
        if failure.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return failure.code
        known = broker.metadata.image.topics.by_name.get(topic)
        # As Kafka, whose older versions had no other code for a replica of other brokers.
        is_elsewhere = known is not None and index in known.partitions
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else failure.code
    return ErrorCode.NONE


API = Api(m.AlterReplicaLogDirsRequest, 1, 2, handle)
