"""DescribeClientQuotas (48): the quotas in the metadata (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.metadata.client_quotas import CLIENT_ID, IP, USER
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

_EXACT, _DEFAULT, _ANY = 0, 1, 2

_Entry = m.DescribeClientQuotasResponse.EntryData
_Entity = m.DescribeClientQuotasResponse.EntityData
_Value = m.DescribeClientQuotasResponse.ValueData

#: Entity names by type; the name of a default entity is None.
_EntityNames = Mapping[str, str | None]


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DescribeClientQuotasRequest
) -> m.DescribeClientQuotasResponse:
    try:
        exact, present = await _filter(request)
    except KafkaError as failure:
        return m.DescribeClientQuotasResponse(error_code=failure.code, error_message=failure.message, entries=None)
    entries = [
        _Entry(
            entity=[_Entity(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[_Value(key=key, value=value) for key, value in values.items()],
        )
        async for entity, values in in_slices(broker.metadata.image.client_quotas.items())
        if _matches(dict(entity), exact, present, request.strict)
    ]
    return m.DescribeClientQuotasResponse(error_message="", entries=entries)


def _matches(entity: _EntityNames, exact: _EntityNames, present: set[str], is_strict: bool) -> bool:
    if is_strict and len(entity) != len(exact) + len(present):
        return False
    has_names = all(kind in entity and entity[kind] == name for kind, name in exact.items())
    return has_names and present <= entity.keys()


async def _filter(request: m.DescribeClientQuotasRequest) -> tuple[dict[str, str | None], set[str]]:
    """Names that must be there by type, None for the default one; and types that must be there by any name."""
    exact: dict[str, str | None] = {}
    present: set[str] = set()
    async for each in in_slices(request.components):
        kind = each.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity type is empty")
        if kind in exact or kind in present:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"entity type {kind!r} is named more than once")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"entities of type {kind!r} have no quotas")
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"match type {each.match_type} is unknown")
        if (each.match_type == _EXACT) != (each.match is not None):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a name is for exact matches, and these need one")
        if each.match_type == _ANY:
            present.add(kind)
        else:
            exact[kind] = each.match
    asked = exact.keys() | present
    if IP in asked and len(asked) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an address has quotas of its own, not with a user or a client id")
    return exact, present


API = Api(m.DescribeClientQuotasRequest, 0, 1, handle)
