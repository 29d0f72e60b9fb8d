"""Quotas of users, client ids and addresses, and credentials of users: look and change. Blocks; fails with
`ClientError`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pybroker.client.cluster import Cluster
from pybroker.client.errors import check
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

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


def alter(
    cluster: Cluster,
    entity: Entity,
    *,
    values: Mapping[str, float],
    delete: Collection[str] = (),
    validate_only: bool = False,
) -> None:
    """Set `values` and let go of those in `delete`. All or nothing."""
    part, op = m.AlterClientQuotasRequest.EntityData, m.AlterClientQuotasRequest.OpData
    ops = [op(key=key, value=value, remove=False) for key, value in values.items()]
    ops += [op(key=key, value=0.0, remove=True) for key in delete]
    named = [part(entity_type=kind, entity_name=name) for kind, name in entity]
    entry = m.AlterClientQuotasRequest.EntryData(entity=named, ops=ops)
    (answer,) = cluster.call(m.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)).entries
    check(text_of(entity), answer.error_code, answer.error_message)


def text_of(entity: Entity) -> str:
    """For people."""
    return ", ".join(f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in entity)


def credentials(cluster: Cluster, user: str | None = None) -> dict[str, dict[str, int]]:
    """Of all users that have some, or of that one: iterations by mechanism. Empty when there are none."""
    named = None if user is None else [m.DescribeUserScramCredentialsRequest.UserName(name=user)]
    answer = cluster.call(m.DescribeUserScramCredentialsRequest(users=named))
    check("DescribeUserScramCredentials", answer.error_code, answer.error_message)
    found = {}
    for row in answer.results:
        if row.error_code != ErrorCode.RESOURCE_NOT_FOUND:
            check(f"user {row.user}", row.error_code, row.error_message)
            found[row.user] = {
                MECHANISMS.get(each.mechanism, str(each.mechanism)): each.iterations for each in row.credential_infos
            }
    return found
