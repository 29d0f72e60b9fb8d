"""`AlterPartitionManager`: brings proposals for ISRs to the controller (AlterPartition, KIP-497). On the asyncio loop.

One request is under way at most; what is proposed meanwhile goes with the next. A request that fails as a whole is sent
again until the controller has answered, without partitions that are led here no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError, code_name
from pybroker.replication.isr_state import Proposal
from pybroker.values import Value

logger = logging.getLogger(__name__)

#: Kafka's: between a request that failed and the next.
_RETRY_BACKOFF_S = 0.05

#: The controller accepts only a leader that has recovered, and a leader that serves has.
_RECOVERED = 0

PartitionId = tuple[bytes, int]
"""(topic id, partition)."""

AnswerCallback = Callable[[Proposal, m.AlterPartitionResponse.PartitionData], None]

_Topic = m.AlterPartitionRequest.TopicData
_Partition = m.AlterPartitionRequest.PartitionData
_Broker = m.AlterPartitionRequest.BrokerState


class AlterPartitionChannel(Protocol):
    """The way to the controller. OSError, TimeoutError or KafkaError when there is none at the moment."""

    async def alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse: ...

    @property
    def broker_epoch(self) -> int: ...


class _Item(Value):
    proposal: Proposal
    answered: AnswerCallback


class AlterPartitionManager:
    """`submit` proposals; `close` at the end."""

    def __init__(self, node_id: int, channel: AlterPartitionChannel) -> None:
        self._node_id = node_id
        self._channel = channel
        self._unanswered: dict[PartitionId, _Item] = {}
        self._sender: asyncio.Task[None] | None = None
        self._closed = False

    def submit(self, partition: PartitionId, proposal: Proposal, answered: AnswerCallback) -> None:
        """Send a proposal, in place of an earlier one for that partition. `answered` gets what the controller says of
        it, unless it is withdrawn before."""
        if self._closed:
            return
        self._unanswered[partition] = _Item(proposal, answered)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all(), name="alter partition")

    def withdraw(self, partition: PartitionId) -> None:
        """The partition is led here no more, or its proposal is overtaken."""
        self._unanswered.pop(partition, None)

    async def close(self) -> None:
        """Send no more."""
        self._closed = True
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def _send_all(self) -> None:
        try:
            # Other proposals of this turn of the loop go along.
            await asyncio.sleep(0)
            while self._unanswered:
                if not await self._send(dict(self._unanswered)):
                    await asyncio.sleep(_RETRY_BACKOFF_S)
        finally:
            self._sender = None

    async def _send(self, items: dict[PartitionId, _Item]) -> bool:
        """Whether all of `items` were answered."""
        try:
            response = await self._channel.alter_partition(self._request(items))
        except (KafkaError, OSError) as error:
            logger.info("the controller could not be told of %d changed ISRs; again soon: %s", len(items), error)
            return False
        except Exception:  # a defect; high watermarks would wait for these proposals for ever
            logger.exception("the controller could not be told of %d changed ISRs; again soon", len(items))
            return False
        if response.error_code != ErrorCode.NONE:
            code = code_name(response.error_code)
            logger.warning("the controller refuses %d changed ISRs with %s; again soon", len(items), code)
            return False
        for topic in response.topics:
            for answer in topic.partitions:
                key = (topic.topic_id, answer.partition_index)
                item = items.pop(key, None)
                if item is not None and self._unanswered.get(key) is item:
                    del self._unanswered[key]
                    item.answered(item.proposal, answer)
        return not items

    def _request(self, items: dict[PartitionId, _Item]) -> m.AlterPartitionRequest:
        topics: dict[bytes, list[m.AlterPartitionRequest.PartitionData]] = defaultdict(list)
        for (topic_id, index), item in items.items():
            # -1 is a follower that has not fetched yet from this leader: the controller takes it as it is registered.
            epochs = {**item.proposal.broker_epochs, self._node_id: self._channel.broker_epoch}
            topics[topic_id].append(
                _Partition(
                    partition_index=index,
                    leader_epoch=item.proposal.leader_epoch,
                    new_isr_with_epochs=[
                        _Broker(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in item.proposal.isr
                    ],
                    leader_recovery_state=_RECOVERED,
                    partition_epoch=item.proposal.partition_epoch,
                )
            )
        return m.AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._channel.broker_epoch,
            topics=[_Topic(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()],
        )
