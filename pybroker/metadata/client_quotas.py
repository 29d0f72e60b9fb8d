"""Quotas of clients (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612): the words of their records, and what they do here.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pybroker.metadata.image import MetadataImage, QuotaEntity

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
    """The limits for the clients of one user, by client id, and for those with any other."""

    named: dict[str, Limit]
    others: Limit


def limit(image: MetadataImage, user: str, client_id: str, key: str) -> Limit:
    """The quota of that key which holds for one client, however many there are for others. As in Kafka, a client
    without client id has no quota but the user's."""
    order = _order(user, client_id) if client_id else _order_of_user(user)
    values = (image.client_quotas.get(entity, {}).get(key) for entity, _ in order)
    return _first(zip(values, order, strict=True))


def limits(image: MetadataImage, user: str, key: str) -> Limits:
    """The same of all clients of `user`."""
    quotas = {entity: values[key] for entity, values in image.client_quotas.items() if key in values}
    names = {name for entity in quotas for kind, name in entity if kind == CLIENT_ID and name}

    def find(order: _Order) -> Limit:
        return _first((quotas.get(each[0]), each) for each in order)

    named = {name: find(_order(user, name)) for name in names}
    return Limits(named | {"": find(_order_of_user(user))}, find(_order(user, None)))


#: Entities whose quota may hold for a client, the first one first, and whether it is shared.
_Order = Sequence[tuple[QuotaEntity, bool]]


def _order(user: str, client_id: str | None) -> _Order:
    """The order for a client; without a name, for client ids that are not named anywhere. Entities are as
    `quota_entity` makes them, of which there may be as many as clients."""
    names = (client_id, None) if client_id is not None else (None,)
    found: list[tuple[QuotaEntity, bool]] = []
    for who in (user, None):
        found += [(((CLIENT_ID, name), (USER, who)), False) for name in names]
        found.append((((USER, who),), True))
    return found + [(((CLIENT_ID, name),), False) for name in names]


def _order_of_user(user: str) -> _Order:
    return [(((USER, who),), True) for who in (user, None)]


def _first(found: Iterable[tuple[float | None, tuple[QuotaEntity, bool]]]) -> Limit:
    """The first value that exists, in the order of the entities."""
    for value, (_, is_shared) in found:
        if value is not None:
            # A value that is no number is no bound.
            return Limit(value, is_shared) if value > 0 else Limit(0.0, False)
    return Limit(0.0, False)
