"""ApiVersions (18): the APIs and versions served here, and the cluster's features (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from pybroker.metadata import features
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.api import Api, BrokerServices, RequestContext

#: From this version on a client names its software, in characters that are safe in a log (KIP-511).
_SOFTWARE_VERSION = 3
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
#: From this version on a client may say which broker of which cluster it wants (KIP-1242).
_IDENTITY_VERSION = 5
_ANY_NODE = -1
_OLDEST = 0
#: Before this version a feature with a lowest level of 0 cannot be told to clients.
_ZERO_LEVEL_VERSION = 4
#: The range of an API that a controller does not know.
_NO_VERSIONS = (0, -1)

VersionRange = tuple[int, int, int]


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.ApiVersionsRequest
) -> m.ApiVersionsResponse:
    if context.api_version >= _SOFTWARE_VERSION and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = broker.metadata.image
    if context.api_version >= _IDENTITY_VERSION:
        wanted = (request.cluster_id, request.node_id)
        if (request.cluster_id is None) != (request.node_id == _ANY_NODE):
            return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if request.cluster_id is not None and wanted != (image.cluster_id, broker.config.node_id):
            return m.ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return m.ApiVersionsResponse(
        api_keys=list(_ranges(broker.served, broker.forwarded, broker.controller.forwarding_ranges)),
        supported_features=[
            m.ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in features.SUPPORTED.items()
            if low > 0 or context.api_version >= _ZERO_LEVEL_VERSION
        ],
        finalized_features_epoch=image.provenance.end_offset - 1,
        finalized_features=[
            m.ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in _finalized(image).items()
        ],
    )


def _finalized(image: Any) -> dict[str, int]:
    levels = dict(image.feature_levels)
    if image.quorum.kraft_version > 0:
        levels[features.KRAFT_VERSION] = image.quorum.kraft_version
    return levels


@lru_cache(maxsize=4)
def _ranges(
    served: tuple[VersionRange, ...], forwarded: frozenset[int], taken: tuple[VersionRange, ...] | None
) -> tuple[m.ApiVersionsResponse.ApiVersion, ...]:
    """The versions served here; of forwarded APIs, as in Kafka, only those that the active controller takes as well.
    Kept for all answers, so no answer gets the object itself: an answer's lists are emptied once it is sent."""
    limits = {key: (low, high) for key, low, high in taken or ()}
    told = []
    for key, low, high in served:
        if key in forwarded and taken is not None:
            lowest, highest = limits.get(key, _NO_VERSIONS)
            low, high = max(low, lowest), min(high, highest)
        if low <= high:
            told.append(m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high))
    return tuple(told)


def unsupported_version_body(api: Api[Any, Any]) -> bytes:
    """The answer to a version that is not served: in version 0, naming the range a client may ask again with."""
    own = m.ApiVersionsResponse.ApiVersion(
        api_key=m.ApiVersionsRequest.API_KEY, min_version=api.min_version, max_version=api.max_version
    )
    response = m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    return response.encode(_OLDEST)


API = Api(m.ApiVersionsRequest, 0, 5, handle)
