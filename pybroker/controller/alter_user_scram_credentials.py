"""AlterUserScramCredentials (KIP-554): what users' passwords are checked against. Pure.

The client sends a salted password. Only what is derived from it is kept (RFC 5802): neither the password nor what a
client proves that it knows it with can be told from that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pybroker.controller.state import ControllerResult, ControllerState, Refusal
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

#: Names of digests by mechanism, as the protocol numbers them: SCRAM-SHA-256, SCRAM-SHA-512.
_DIGESTS = {1: "sha256", 2: "sha512"}
_MIN_ITERATIONS, _MAX_ITERATIONS = 4096, 16384
#: The metadata.version that brought the records, 3.5-IV2.
_FIRST_METADATA_VERSION = 11

_Deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Row = m.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def alter_user_scram_credentials(
    state: ControllerState, request: m.AlterUserScramCredentialsRequest
) -> ControllerResult[m.AlterUserScramCredentialsResponse]:
    """Delete and set credentials; a row per user, of whom a request may change one credential."""
    found: dict[str, VersionedRecord | Refusal] = {}
    for each, make in _alterations(request):
        if each.name in found:
            if isinstance(found[each.name], VersionedRecord):
                found[each.name] = Refusal(
                    ErrorCode.DUPLICATE_RESOURCE, "only one credential of a user can be altered in a request"
                )
            continue
        try:
            _check(state, each)
            found[each.name] = state.versioned(make(state, each))
        except Refusal as refusal:
            found[each.name] = refusal
    rows, records = [], []
    for name, outcome in found.items():
        if isinstance(outcome, Refusal):
            rows.append(_Row(user=name, error_code=outcome.code, error_message=outcome.message))
        else:
            rows.append(_Row(user=name, error_message=None))
            records.append(outcome)
    return ControllerResult(m.AlterUserScramCredentialsResponse(results=rows), records)


def _alterations(
    request: m.AlterUserScramCredentialsRequest,
) -> list[tuple[_Deletion | _Upsertion, Callable[[ControllerState, Any], m.Message]]]:
    deletions: list[Any] = [(each, _deletion) for each in request.deletions]
    return deletions + [(each, _upsertion) for each in request.upsertions]


def _check(state: ControllerState, each: _Deletion | _Upsertion) -> None:
    if state.image.metadata_version < _FIRST_METADATA_VERSION:
        raise Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata of metadata.version {state.image.metadata_version} has no credentials; "
            f"{_FIRST_METADATA_VERSION} has",
        )
    if not each.name:
        raise _unacceptable("a user name cannot be empty")
    if each.mechanism not in _DIGESTS:
        raise Refusal(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"there is no mechanism {each.mechanism}; accepted: 1 (SCRAM-SHA-256), 2 (SCRAM-SHA-512)",
        )


def _deletion(state: ControllerState, deletion: _Deletion) -> m.RemoveUserScramCredentialRecord:
    if (deletion.mechanism, deletion.name) not in state.image.scram_credentials:
        raise Refusal(
            ErrorCode.RESOURCE_NOT_FOUND, f"user {deletion.name!r} has no credential of that mechanism to be deleted"
        )
    return m.RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)


def _upsertion(state: ControllerState, upsertion: _Upsertion) -> m.UserScramCredentialRecord:
    del state
    if not _MIN_ITERATIONS <= upsertion.iterations <= _MAX_ITERATIONS:
        raise _unacceptable(
            f"a credential takes {_MIN_ITERATIONS} to {_MAX_ITERATIONS} iterations, not {upsertion.iterations}"
        )
    if not upsertion.salted_password:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "a salted password cannot be empty")
    # Brokers start without them.
    import hashlib
    import hmac

    digest = _DIGESTS[upsertion.mechanism]
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", digest)
    return m.UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=upsertion.salt,
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(upsertion.salted_password, b"Server Key", digest),
        iterations=upsertion.iterations,
    )


def _unacceptable(message: str) -> Refusal:
    return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
