"""Every message of Kafka's protocol and every record schema, as a class: `messages.MetadataRequest(topics=None)`.

A class is made when it is first asked for, its codec for a version when it is first used. Their types are in
`messages.pyi`, which `python -m pybroker.protocol.generate stub` writes.
"""

from __future__ import annotations

from typing import Any

from pybroker.protocol import definitions
from pybroker.protocol.loader import (
    ApiInfo,
    apis,
    message_class,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from pybroker.protocol.runtime import Message, Struct

__all__ = [
    "ApiInfo",
    "Message",
    "Struct",
    "apis",
    "message_class",
    "request_class",
    "request_header_version",
    "response_class",
    "response_header_version",
]


def __getattr__(name: str) -> Any:
    try:
        found = message_class(name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *definitions.names()})
