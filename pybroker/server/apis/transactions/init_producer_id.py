"""InitProducerId (22): a producer id for an idempotent producer (KIP-98).

There is no transaction coordinator. A transactional id gets NOT_COORDINATOR: clients look its coordinator up then, and
FindCoordinator says for good that there is none.
"""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.api import Api, BrokerServices, RequestContext

_NO_PRODUCER_ID = -1
_NO_PRODUCER_EPOCH = -1


async def handle(
    broker: BrokerServices, _context: RequestContext, request: m.InitProducerIdRequest
) -> m.InitProducerIdResponse:
    if (request.producer_id == _NO_PRODUCER_ID) != (request.producer_epoch == _NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(ErrorCode.NOT_COORDINATOR if request.transactional_id else ErrorCode.INVALID_REQUEST)
    # An id that an idempotent producer had before is dropped: nothing ties a producer without a transactional id to its
    # former session.
    producer_id = broker.producer_ids.take()
    if producer_id is None:
        # As in Apache Kafka; clients try again on this code alone.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(error: ErrorCode) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(error_code=error, producer_id=_NO_PRODUCER_ID, producer_epoch=_NO_PRODUCER_EPOCH)


API = Api(m.InitProducerIdRequest, 0, 5, handle)
