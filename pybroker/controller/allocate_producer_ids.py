"""AllocateProducerIds (KIP-730): blocks of producer ids. Pure."""

from __future__ import annotations

from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = 2**63 - 1


def allocate_producer_ids(
    state: ControllerState, request: m.AllocateProducerIdsRequest, known_id: int = -1
) -> ControllerResult[m.AllocateProducerIdsResponse]:
    """A block that no broker has had, above `known_id`, which logs know, whatever the metadata say: they may be older.
    STALE_BROKER_EPOCH unless the broker is registered with that epoch."""
    broker = state.image.cluster.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return ControllerResult(m.AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    start = max(state.image.next_producer_id, (known_id // BLOCK_SIZE + 1) * BLOCK_SIZE)
    if start > _LAST_PRODUCER_ID - BLOCK_SIZE:
        return ControllerResult(m.AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    record = m.ProducerIdsRecord(broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=start + BLOCK_SIZE)
    response = m.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)
    return ControllerResult(response, [VersionedRecord(record, 0)])
