"""Quotas of clients (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612): the words of their records, and what they do here.
Pure."""

from __future__ import annotations

from typing import NamedTuple

from pybroker.metadata.image import MetadataImage, QuotaEntity, quota_entity

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
IP_CONNECTION_RATE = "connection_creation_rate"

ENFORCED = frozenset((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE))
"""Quotas that clients are held to; others are kept for those brokers that do."""


def not_enforced(image: MetadataImage) -> list[str]:
    """The keys of quotas that are set, and that this broker holds nobody to, in order."""
    return sorted({key for values in image.client_quotas.values() for key in values} - ENFORCED)


class Limit(NamedTuple):
    """The quota that holds for a client: 0 is none. `is_shared`: as one with all clients of the same user."""

    value: float
    is_shared: bool


class Limits(NamedTuple):
    """What holds for the clients of one user, by client id, and for those with any other."""

    named: dict[str, Limit]
    others: Limit


def limits(image: MetadataImage, user: str, key: str) -> Limits:
    """The quotas of that key which hold for the clients of `user`. As in Kafka, a client without client id has no quota
    but the user's."""
    quotas = {entity: values[key] for entity, values in image.client_quotas.items() if key in values}
    names = {name for entity in quotas for kind, name in entity if kind == CLIENT_ID and name}
    named = {name: _limit(quotas, _order(user, name)) for name in names}
    of_user: list[tuple[dict[str, str | None], bool]] = [({USER: user}, True), ({USER: None}, True)]
    return Limits(named | {"": _limit(quotas, of_user)}, _limit(quotas, _order(user, None)))


def _order(user: str, client_id: str | None) -> list[tuple[dict[str, str | None], bool]]:
    """Entities whose quota may hold for a client, the first one first, and whether it is shared. Without a name: of
    client ids that are not named anywhere."""
    found: list[tuple[dict[str, str | None], bool]] = []
    names = (client_id, None) if client_id is not None else (None,)
    for who in (user, None):
        found += [({USER: who, CLIENT_ID: name}, False) for name in names]
        found.append(({USER: who}, True))
    return found + [({CLIENT_ID: name}, False) for name in names]


def _limit(quotas: dict[QuotaEntity, float], order: list[tuple[dict[str, str | None], bool]]) -> Limit:
    for names, is_shared in order:
        value = quotas.get(quota_entity(names))
        if value is not None:
            # What is no number is no bound.
            return Limit(value, is_shared) if value > 0 else Limit(0.0, False)
    return Limit(0.0, False)
