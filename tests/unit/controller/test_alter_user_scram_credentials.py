"""AlterUserScramCredentials: rows, error codes and records. Codes are those Apache Kafka answers."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from pybroker.controller.alter_user_scram_credentials import alter_user_scram_credentials
from pybroker.controller.state import ControllerState
from pybroker.metadata.delta import MetadataDelta
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

MakeState = Callable[..., ControllerState]
After = Callable[..., ControllerState]
SHA_256, SHA_512 = 1, 2


def _delete(name: str, mechanism: int = SHA_256) -> m.AlterUserScramCredentialsRequest.ScramCredentialDeletion:
    return m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


def _set(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, salted_password: bytes = b"salted"
) -> m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    return m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted_password
    )


def _alter(state: ControllerState, deletions: Any = (), upsertions: Any = ()) -> Any:
    request = m.AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
    return alter_user_scram_credentials(state, request)


def _codes(result: Any) -> dict[str, int]:
    return {row.user: row.error_code for row in result.response.results}


def test_a_credential_is_set_changed_and_deleted(make_state: MakeState, after: After) -> None:
    state = make_state()
    for iterations in (4096, 16384):
        result = _alter(state, upsertions=[_set("ann", iterations=iterations), _set("bob", SHA_512)])
        assert [(row.error_code, row.error_message) for row in result.response.results] == [(0, None)] * 2
        state = after(state, result)
        assert state.image.scram_credentials[SHA_256, "ann"].iterations == iterations
    result = _alter(state, [_delete("ann")])
    assert list(after(state, result).image.scram_credentials) == [(SHA_512, "bob")]


def test_keys_are_those_of_the_example_of_rfc_7677(make_state: MakeState, after: After) -> None:
    """The server's signature is an HMAC with the server key there; a client's proof is checked with the stored one."""
    import hmac

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    state = make_state()
    state = after(state, _alter(state, upsertions=[_set("user", salted_password=salted)]))
    kept = state.image.scram_credentials[SHA_256, "user"]
    said = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = base64.b64encode(hmac.digest(kept.server_key, said, "sha256"))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    mask = hmac.digest(kept.stored_key, said, "sha256")
    client_key = bytes(left ^ right for left, right in zip(proof, mask, strict=True))
    assert hashlib.sha256(client_key).digest() == kept.stored_key


@pytest.mark.parametrize(
    ("upsertion", "error"),
    [
        (_set(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (_set("ann", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (_set("ann", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (_set("ann", iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (_set("ann", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (_set("ann", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (_set("ann", -1), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (_set("ann", salted_password=b""), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_no_credential_can_be(make_state: MakeState, upsertion: Any, error: ErrorCode) -> None:
    result = _alter(make_state(), upsertions=[upsertion, _set("bob")])
    assert _codes(result) == {upsertion.name: error, "bob": 0}
    assert [each.record.name for each in result.records] == ["bob"]


@pytest.mark.parametrize(
    ("deletion", "error"),
    [
        (_delete("nobody"), ErrorCode.RESOURCE_NOT_FOUND),
        (_delete("ann", SHA_512), ErrorCode.RESOURCE_NOT_FOUND),
        (_delete("ann", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (_delete(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_what_cannot_be_deleted(make_state: MakeState, after: After, deletion: Any, error: ErrorCode) -> None:
    state = make_state()
    state = after(state, _alter(state, upsertions=[_set("ann")]))
    result = _alter(state, [deletion])
    assert _codes(result) == {deletion.name: error}
    assert result.records == []


@pytest.mark.parametrize(
    ("deletions", "upsertions", "error"),
    [
        ([], [_set("ann"), _set("ann", SHA_512)], ErrorCode.DUPLICATE_RESOURCE),
        ([_delete("ann")], [_set("ann", SHA_512)], ErrorCode.DUPLICATE_RESOURCE),
        ([_delete("ann"), _delete("ann")], [], ErrorCode.DUPLICATE_RESOURCE),
        ([_delete("ann"), _delete("ann")], [_set("ann")], ErrorCode.DUPLICATE_RESOURCE),
        ([], [_set("ann", 9), _set("ann")], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([_delete("ann", 9)], [_set("ann")], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_user_is_altered_once(
    make_state: MakeState, after: After, deletions: Any, upsertions: Any, error: ErrorCode
) -> None:
    state = make_state()
    state = after(state, _alter(state, upsertions=[_set("ann")]))
    result = _alter(state, deletions, upsertions)
    assert _codes(result) == {"ann": error}
    assert result.records == []


def test_metadata_from_before_there_were_credentials(make_state: MakeState) -> None:
    state = make_state()
    delta = MetadataDelta(state.image)
    delta.replay(m.FeatureLevelRecord(name="metadata.version", feature_level=10), 0)
    state = ControllerState(delta.apply(state.image.provenance), state.config, state.node_id, state.next_offset)
    assert _codes(_alter(state, [_delete("ann")], [_set("bob")])) == dict.fromkeys(
        ("ann", "bob"), ErrorCode.UNSUPPORTED_VERSION
    )
