"""DescribeProducers (61): the producers that partitions led here remember (KIP-664)."""

from __future__ import annotations

from pybroker.controller.topic_names import check_name
from pybroker.protocol import messages as m
from pybroker.protocol.errors import KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

_Row = m.DescribeProducersResponse.PartitionResponse
_Producer = m.DescribeProducersResponse.ProducerState


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DescribeProducersRequest
) -> m.DescribeProducersResponse:
    return m.DescribeProducersResponse(
        topics=[
            m.DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    _row(broker, topic.name, index) async for index in in_slices(dict.fromkeys(topic.partition_indexes))
                ],
            )
            async for topic in in_slices(request.topics)
        ]
    )


def _row(broker: BrokerServices, topic: str, partition: int) -> m.DescribeProducersResponse.PartitionResponse:
    try:
        check_name(topic)
        producers = broker.replicas.producers(topic, partition)
    except KafkaError as failure:
        return _Row(partition_index=partition, error_code=failure.code, error_message=failure.message)
    return _Row(
        partition_index=partition,
        active_producers=[
            _Producer(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.transaction_start_offset,
            )
            for each in producers
        ],
    )


API = Api(m.DescribeProducersRequest, 0, 0, handle)
