"""AlterClientQuotas (KIP-546, KIP-612): how much users, client ids and addresses may ask of the brokers. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping

from pybroker.controller.state import (
    MAX_RECORDS_PER_OPERATION,
    ControllerResult,
    ControllerState,
    Refusal,
    invalid_request,
)
from pybroker.metadata.client_quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    IP_CONNECTION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from pybroker.metadata.image import QuotaEntity, quota_entity
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

#: The largest fraction that is taken for none.
_TOLERANCE = 1e-6


def _any(value: float) -> str | None:
    del value
    return None


def _whole(largest: int) -> Callable[[float], str | None]:
    def judge(value: float) -> str | None:
        # As Java compares them: the largest long is a float that is one more.
        if value > float(largest):
            return f"is at most {largest}"
        return "is a whole number" if abs(value) % 1.0 > _TOLERANCE else None

    return judge


# The fault of a value, in words, by key.
_Rules = Mapping[str, Callable[[float], str | None]]
_CLIENT_RULES: _Rules = {
    PRODUCER_BYTE_RATE: _whole(2**63 - 1),
    CONSUMER_BYTE_RATE: _whole(2**63 - 1),
    REQUEST_PERCENTAGE: _any,
    CONTROLLER_MUTATION_RATE: _any,
}
_ADDRESS_RULES: _Rules = {IP_CONNECTION_RATE: _whole(2**31 - 1)}

_Entry = m.AlterClientQuotasRequest.EntryData
_Row = m.AlterClientQuotasResponse.EntryData
_Part = m.AlterClientQuotasResponse.EntityData


def addresses(request: m.AlterClientQuotasRequest) -> set[str]:
    """The addresses and host names that the request names: somebody has to find out which of them there are."""
    return {name for entry in request.entries for kind, name in _entity(entry) if kind == IP and name}


def alter_client_quotas(
    state: ControllerState, request: m.AlterClientQuotasRequest, unknown_hosts: Collection[str]
) -> ControllerResult[m.AlterClientQuotasResponse]:
    """Set and remove quotas; a row per entity, each all or nothing. `unknown_hosts`: those of `addresses` that are
    none."""
    rows: dict[QuotaEntity, _Row] = {}
    records: list[VersionedRecord] = []
    for entry in request.entries:
        entity = _entity(entry)
        row = _Row(error_message=None, entity=[_Part(entity_type=kind, entity_name=name) for kind, name in entity])
        try:
            if entity in rows:
                raise invalid_request(f"{_text(entity)} is named more than once; the first time counts")
            changes = list(_changes(state, entity, entry, unknown_hosts))
            if len(records) + len(changes) > MAX_RECORDS_PER_OPERATION:
                raise Refusal(
                    ErrorCode.POLICY_VIOLATION,
                    f"one request can change at most {MAX_RECORDS_PER_OPERATION} quotas; send several requests",
                )
            records += changes
        except Refusal as refusal:
            row.error_code, row.error_message = refusal.code, refusal.message
        rows[entity] = row
    response = m.AlterClientQuotasResponse(entries=list(rows.values()))
    return ControllerResult(response, [] if request.validate_only else records)


def _entity(entry: _Entry) -> QuotaEntity:
    return quota_entity({part.entity_type: part.entity_name for part in entry.entity})


def _changes(
    state: ControllerState, entity: QuotaEntity, entry: _Entry, unknown_hosts: Collection[str]
) -> Iterator[VersionedRecord]:
    """Records for what is not so already. Refusal when something of it cannot be."""
    rules = _rules(entity, unknown_hosts)
    current = state.image.client_quotas.get(entity, {})
    part = m.ClientQuotaRecord.EntityData
    wanted: dict[str, float | None] = {}
    for op in entry.ops:
        if op.key in wanted:
            raise invalid_request(f"quota {op.key} of {_text(entity)} is named more than once")
        if not op.remove:
            _check_value(rules, op.key, op.value)
        wanted[op.key] = None if op.remove else op.value
    for key, value in wanted.items():
        if value == current.get(key):
            continue
        record = m.ClientQuotaRecord(
            entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
            key=key,
            value=0.0 if value is None else value,
            remove=value is None,
        )
        yield state.versioned(record)


def _rules(entity: QuotaEntity, unknown_hosts: Collection[str]) -> _Rules:
    """Which quotas the entity can have. Refusal when it can have none."""
    if not entity:
        raise invalid_request("an entity has a user, a client id or an address; this one is empty")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise invalid_request(f"entities of type {kind!r} have no quotas; accepted: {USER}, {CLIENT_ID}, {IP}")
        if name == "":
            raise invalid_request(f"the name of a {kind} cannot be empty; a null name is the default")
    names = dict(entity)
    if IP not in names:
        return _CLIENT_RULES
    if len(names) > 1:
        raise invalid_request("an address has quotas of its own, not with a user or a client id")
    if names[IP] in unknown_hosts:
        raise invalid_request(f"{names[IP]} is no IP address, and no host that can be resolved")
    return _ADDRESS_RULES


def _check_value(rules: _Rules, key: str, value: float) -> None:
    judge = rules.get(key)
    if judge is None:
        raise invalid_request(f"there is no quota {key!r} for such an entity; accepted: {', '.join(rules)}")
    if not math.isfinite(value):
        raise invalid_request(f"quota {key} must be a finite number, not {value!r}")
    problem = "is greater than 0" if value <= 0.0 else judge(value)
    if problem is not None:
        raise invalid_request(f"quota {key} {problem}, not {value!r}")


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)
