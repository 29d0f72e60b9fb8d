"""Quotas of users, client ids and addresses, and which credentials users have. Blocks; fails with `ClientError`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from pybroker.client.cluster import Cluster
from pybroker.client.errors import check
from pybroker.protocol import messages as m

#: The mechanisms of credentials, as the protocol numbers them.
MECHANISMS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

Entity = tuple[tuple[str, str | None], ...]
"""Who has quotas: (entity type, name) pairs in the order of the types; no name is the default of the type."""
Quotas = dict[Entity, dict[str, float]]


class Every(Enum):
    """In place of a name: whoever there is of the type."""

    EVERY = "every"


EVERY: Final = Every.EVERY
Who = dict[str, str | Every | None]
"""By entity type whom is asked for; None is the default of the type."""

_SALT_BYTES = 24
_EXACT, _DEFAULT, _ANY = 0, 1, 2


class Password(NamedTuple):
    """A user's password, from which a credential is made; a broker is told only the credential."""

    text: str
    iterations: int


def entity_of(names: Mapping[str, str | None]) -> Entity:
    """The entity that these names by type make."""
    return tuple(sorted(names.items(), key=lambda part: part[0]))


def describe(cluster: Cluster, who: Who | None = None) -> Quotas:
    """All that are set, or those of `who`, of just these types."""
    component = m.DescribeClientQuotasRequest.ComponentData
    components = [
        component(
            entity_type=kind,
            match_type=_ANY if name is EVERY else _DEFAULT if name is None else _EXACT,
            match=name if isinstance(name, str) else None,
        )
        for kind, name in (who or {}).items()
    ]
    answer = cluster.call(m.DescribeClientQuotasRequest(components=components, strict=who is not None))
    check("DescribeClientQuotas", answer.error_code, answer.error_message)
    return {
        entity_of({part.entity_type: part.entity_name for part in entry.entity}): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries or ()
    }


def credentials(cluster: Cluster) -> dict[str, dict[str, int]]:
    """The credentials of all users that have some: iterations by mechanism."""
    answer = cluster.call(m.DescribeUserScramCredentialsRequest(users=None))
    check("DescribeUserScramCredentials", answer.error_code, answer.error_message)
    found = {}
    for row in answer.results:
        check(f"user {row.user}", row.error_code, row.error_message)
        found[row.user] = {
            MECHANISMS.get(each.mechanism, str(each.mechanism)): each.iterations for each in row.credential_infos
        }
    return found


def alter(
    cluster: Cluster,
    entity: Entity,
    *,
    values: Mapping[str, float],
    delete: Collection[str] = (),
    validate_only: bool = False,
) -> None:
    """Set quotas of one entity and let go of those in `delete`. All or nothing."""
    request = m.AlterClientQuotasRequest
    ops = [request.OpData(key=key, value=value, remove=False) for key, value in values.items()]
    ops += [request.OpData(key=key, value=0.0, remove=True) for key in delete]
    parts = [request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    asked = request(entries=[request.EntryData(entity=parts, ops=ops)], validate_only=validate_only)
    (answer,) = cluster.call(asked).entries
    check(text_of(entity), answer.error_code, answer.error_message)


def alter_credential(cluster: Cluster, user: str, mechanism: int, password: Password | None) -> None:
    """Give a user a credential, or (None) take it away: brokers take one of a user in a request."""
    request = m.AlterUserScramCredentialsRequest()
    if password is None:
        request.deletions = [request.ScramCredentialDeletion(name=user, mechanism=mechanism)]
    else:
        salt = os.urandom(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(_digest(mechanism), password.text.encode(), salt, password.iterations)
        request.upsertions = [
            request.ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=password.iterations, salt=salt, salted_password=salted
            )
        ]
    for row in cluster.call(request).results:
        check(f"user {row.user}", row.error_code, row.error_message)


def _digest(mechanism: int) -> str:
    return MECHANISMS[mechanism].removeprefix("SCRAM-").replace("-", "").lower()


def names_of(entity: Entity) -> dict[str, str]:
    """By type; the one that stands for all others has a word of its own."""
    return {kind: "<default>" if name is None else name for kind, name in entity}


def text_of(entity: Entity) -> str:
    """For people."""
    words = {"client-id": "client"}
    return ", ".join(f"{words.get(kind, kind)} {name}" for kind, name in reversed(names_of(entity).items()))
