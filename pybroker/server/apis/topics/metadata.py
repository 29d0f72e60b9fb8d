"""Metadata (3): brokers, topics, and who leads their partitions.

A topic that is missing may be created by asking for it. As in Apache Kafka, the request only starts that: the answer
calls the topic unknown, whatever becomes of its creation, and a later request finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pybroker.controller.state import Refusal
from pybroker.controller.topic_names import SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC, check_name
from pybroker.metadata.cache import Variant, error_row
from pybroker.metadata.image import MetadataImage, TopicImage
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.uuids import ZERO_UUID
from pybroker.server.api import Api, BrokerServices, Encoded, RequestContext
from pybroker.turns import SteadyDict, drop, in_slices

#: Up to this version an empty list asks for all topics; later a null one does.
_EMPTY_MEANS_ALL_VERSION = 0
#: Before this version a request cannot say that it wants no topic created.
_AUTO_CREATION_FLAG_VERSION = 4
#: From this version on topics can be named by id (KIP-516).
_TOPIC_ID_VERSION = 12

#: Topics that coordinators make with settings of their own, on other brokers or nowhere. A topic of that name with
#: other settings would lose the coordinator's records.
_NOT_OURS = frozenset({TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

Row = m.MetadataResponse.MetadataResponseTopic


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.MetadataRequest
) -> m.MetadataResponse | Encoded:
    version = context.api_version
    variant = Variant(
        version,
        context.listener,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
    )
    wanted = request.topics
    if wanted is None or (version == _EMPTY_MEANS_ALL_VERSION and not wanted):
        return await broker.metadata_cache.all_topics(broker.metadata.image, variant)
    # As Kafka: a topic that is named twice is answered once.
    names: SteadyDict[str, None] = SteadyDict()
    ids: SteadyDict[bytes, None] = SteadyDict()
    refused = False
    async for topic in in_slices(wanted):
        refused = refused or topic.name is None or topic.topic_id != ZERO_UUID
        if topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] = None
        elif topic.name is not None:
            names[topic.name] = None
    if refused and version < _TOPIC_ID_VERSION:
        return await _refused(wanted)
    may_create = request.allow_auto_topic_creation or version < _AUTO_CREATION_FLAG_VERSION
    # One image for all of the answer: what changes meanwhile could name brokers that the answer does not list.
    image = broker.metadata.image
    if ids:
        found, rows = await _by_id(image, ids)
    else:
        found, rows = await _by_name(broker, image, context, names, may_create)
    body = await broker.metadata_cache.some_topics(image, variant, found, rows)
    for each in (found, names, ids):
        await drop(each)
    return body


async def _refused(wanted: list[m.MetadataRequest.MetadataRequestTopic]) -> m.MetadataResponse:
    """As Kafka: no answer of those versions has room for a topic without a name."""
    return m.MetadataResponse(
        topics=[
            error_row(ErrorCode.INVALID_REQUEST, each.name or "", each.topic_id) async for each in in_slices(wanted)
        ]
    )


async def _by_id(image: MetadataImage, topic_ids: Iterable[bytes]) -> tuple[list[TopicImage], Iterator[Row]]:
    known = image.topics.by_id
    found, missing = [], []
    async for topic_id in in_slices(topic_ids):
        topic = known.get(topic_id)
        if topic is None:
            missing.append(topic_id)
        else:
            found.append(topic)
    return found, (error_row(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id) for topic_id in missing)


async def _by_name(
    broker: BrokerServices, image: MetadataImage, context: RequestContext, names: Iterable[str], may_create: bool
) -> tuple[list[TopicImage], Iterator[Row]]:
    known, creation = image.topics.by_name, broker.topic_creation
    found, missing = [], []
    async for name in in_slices(names):
        topic = known.get(name)
        if topic is None or (name in creation and broker.replicas.is_opening(topic)):
            missing.append(name)
        else:
            found.append(topic)
    if missing and may_create and broker.config.get_bool("auto.create.topics.enable"):
        origin = Origin(context.principal, context.client_host, context.client_id)
        creation.begin([name async for name in in_slices(missing) if _may_be_created(name)], origin)
    return found, (error_row(_unknown(name), name) for name in missing)


def _may_be_created(name: str) -> bool:
    return name not in _NOT_OURS and _unknown(name) is not ErrorCode.INVALID_TOPIC_EXCEPTION


def _unknown(name: str) -> ErrorCode:
    try:
        check_name(name)
    except Refusal as refusal:
        return refusal.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


API: Api[m.MetadataRequest, m.MetadataResponse] = Api(m.MetadataRequest, 0, 13, handle)
