"""DescribeLogDirs (35): the log dirs, how full they are, and the partitions in them (KIP-113, KIP-827)."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from pathlib import Path

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.runtime import fitting
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import SteadyDict, drop, in_slices

_Result = m.DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = m.DescribeLogDirsResponse.DescribeLogDirsTopic
_Partition = m.DescribeLogDirsResponse.DescribeLogDirsPartition


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DescribeLogDirsRequest
) -> m.DescribeLogDirsResponse:
    wanted: SteadyDict[tuple[str, int], None] | None = None
    if request.topics is not None:
        wanted = SteadyDict()
        async for asked in in_slices(request.topics):
            async for index in in_slices(asked.partitions):
                wanted[asked.topic, index] = None
    by_dir: dict[Path, dict[str, list[m.DescribeLogDirsResponse.DescribeLogDirsPartition]]] = {}
    for path in broker.replicas.log_dirs():
        by_dir[path] = defaultdict(list)
    held = await broker.replicas.placements(wanted)
    async for (topic, index), (path, state) in in_slices(held.items()):
        by_dir[path][topic].append(_Partition(partition_index=index, partition_size=state.size_bytes, offset_lag=0))
    for future in broker.mover.futures():
        topic, index = future.key
        if future.log_dir in by_dir and (wanted is None or future.key in wanted):
            row = _Partition(
                partition_index=index,
                partition_size=future.size_bytes,
                offset_lag=future.offset_lag,
                is_future_key=True,
            )
            by_dir[future.log_dir][topic].append(row)
    if wanted is not None:
        await drop(wanted)
    results = await asyncio.gather(*(asyncio.to_thread(_result, *each) for each in by_dir.items()))
    cordoned = broker.config.get_list("cordoned.log.dirs")
    for path, result in zip(by_dir, results, strict=True):
        result.is_cordoned = "*" in cordoned or str(path) in cordoned
    for path in broker.replicas.offline_log_dirs():
        results.append(_Result(log_dir=fitting(str(path.absolute())), error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    return m.DescribeLogDirsResponse(results=results)


def _result(
    path: Path, topics: dict[str, list[m.DescribeLogDirsResponse.DescribeLogDirsPartition]]
) -> m.DescribeLogDirsResponse.DescribeLogDirsResult:
    """Blocks on the file system."""
    result = _Result(
        log_dir=fitting(str(path.absolute())),
        topics=[_Topic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    try:
        volume = os.statvfs(path)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.total_bytes = volume.f_blocks * volume.f_frsize
    result.usable_bytes = volume.f_bavail * volume.f_frsize
    return result


API = Api(m.DescribeLogDirsRequest, 1, 5, handle)
