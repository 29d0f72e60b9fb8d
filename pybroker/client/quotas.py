"""Quotas of users, client ids and addresses, and which credentials users have. Blocks; fails with `ClientError`."""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.client.cluster import Cluster
from pybroker.client.errors import check
from pybroker.protocol import messages as m

#: Of credentials, as the protocol numbers them.
MECHANISMS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

Entity = tuple[tuple[str, str | None], ...]
"""Who has quotas: (entity type, name) pairs in the order of the types; no name is the default of the type."""
Quotas = dict[Entity, dict[str, float]]


def entity_of(names: Mapping[str, str | None]) -> Entity:
    """The entity that these names by type make."""
    return tuple(sorted(names.items(), key=lambda part: part[0]))


def describe(cluster: Cluster) -> Quotas:
    """All that are set."""
    answer = cluster.call(m.DescribeClientQuotasRequest(components=[], strict=False))
    check("DescribeClientQuotas", answer.error_code, answer.error_message)
    return {
        entity_of({part.entity_type: part.entity_name for part in entry.entity}): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries or ()
    }


def credentials(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Of all users that have some: iterations by mechanism."""
    answer = cluster.call(m.DescribeUserScramCredentialsRequest(users=None))
    check("DescribeUserScramCredentials", answer.error_code, answer.error_message)
    found = {}
    for row in answer.results:
        check(f"user {row.user}", row.error_code, row.error_message)
        found[row.user] = {
            MECHANISMS.get(each.mechanism, str(each.mechanism)): each.iterations for each in row.credential_infos
        }
    return found
