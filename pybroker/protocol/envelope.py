"""Envelope (KIP-590): a client's request, forwarded to the active controller in the client's name. Pure."""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError, known_code
from pybroker.values import Value

_PRINCIPAL_VERSION = 0
_VERSION = struct.Struct(">h")


class Origin(Value):
    """The sender of the request. `principal` is Kafka's `type:name`, `host` the client's address as text."""

    principal: str = "User:ANONYMOUS"
    host: str = "127.0.0.1"
    client_id: str | None = None


def wrap(request: m.Message, version: int, origin: Origin) -> m.EnvelopeRequest:
    """The Envelope that carries `request` in that version."""
    api_key = request.API_KEY
    assert api_key is not None
    header = m.RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=0, client_id=origin.client_id
    )
    kind, _, name = origin.principal.partition(":")
    principal = m.DefaultPrincipalData(type=kind, name=name, token_authenticated=False)
    return m.EnvelopeRequest(
        request_data=header.encode(m.request_header_version(api_key, version)) + request.encode(version),
        request_principal=_VERSION.pack(_PRINCIPAL_VERSION) + principal.encode(_PRINCIPAL_VERSION),
        client_host_address=ipaddress.ip_address(origin.host.partition("%")[0]).packed,
    )


def unwrap(request: m.Message, version: int, answer: m.EnvelopeResponse) -> Any:
    """The response in it. KafkaError with the controller's code when there is none; ProtocolError for garbage."""
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(known_code(answer.error_code), "the active controller did not take the forwarded request")
    api_key = request.API_KEY
    assert api_key is not None
    data = answer.response_data or b""
    _, position = m.ResponseHeader.decode(m.response_header_version(api_key, version), data)
    response, end = m.response_class(api_key).decode(version, data, position)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes after the forwarded response")
    return response
