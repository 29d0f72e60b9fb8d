"""A controller, as far as ISRs go."""

from __future__ import annotations

import asyncio

from pybroker.protocol import messages as m

Response = m.AlterPartitionResponse


def accepted(request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
    """What a controller answers that does everything."""
    return Response(
        topics=[
            Response.TopicData(
                topic_id=topic.topic_id,
                partitions=[
                    Response.PartitionData(
                        partition_index=each.partition_index,
                        leader_id=request.broker_id,
                        leader_epoch=each.leader_epoch,
                        isr=[member.broker_id for member in each.new_isr_with_epochs],
                        partition_epoch=each.partition_epoch + 1,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class Channel:
    """Answers by `script`, one step per request, and then accepts."""

    broker_epoch = 77

    def __init__(self, *script: m.AlterPartitionResponse | Exception) -> None:
        self.script = list(script)
        self.requests: list[m.AlterPartitionRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        self.requests.append(request)
        await self.gate.wait()
        step = self.script.pop(0) if self.script else accepted(request)
        if isinstance(step, Exception):
            raise step
        return step
