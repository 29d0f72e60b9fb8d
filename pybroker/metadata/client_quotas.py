"""Quotas of clients (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612): the words of their records, and what they do here.
Pure."""

from __future__ import annotations

from pybroker.metadata.image import MetadataImage

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
IP_CONNECTION_RATE = "connection_creation_rate"

ENFORCED: frozenset[str] = frozenset()
"""Quotas that this broker holds clients to; others are kept for those brokers that do."""


def not_enforced(image: MetadataImage) -> list[str]:
    """The keys of quotas that are set, and that this broker holds nobody to, in order."""
    return sorted({key for values in image.client_quotas.values() for key in values} - ENFORCED)
