"""Records of the coordinators' internal topics: `__consumer_offsets`, `__transaction_state`, `__share_group_state`.

A key is the record type (the schema's API key) as int16, then the key's body at version 0; a value is its version as
int16, then the body. A record without value is a tombstone. Namespaces are `group`, `transaction` and `share`; their
types overlap.
"""

from __future__ import annotations

import struct

from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.loader import record_class
from pybroker.protocol.runtime import Message
from pybroker.values import Value

COORDINATOR_NAMESPACES = ("group", "transaction", "share")
_PREFIX = struct.Struct(">h")
_KEY_VERSION = 0


class CoordinatorRecord(Value):
    """One decoded record. A tombstone has neither value nor value version."""

    key: Message
    value: Message | None
    value_version: int | None


class UnknownRecordTypeError(ProtocolError):
    """The key's type is none that this release knows: written by a newer one, and safe to pass over as Kafka does."""


def encode_key(key: Message) -> bytes:
    """A record's key. ProtocolError when `key` is no coordinator key."""
    if key.API_KEY is None or not type(key).__name__.endswith("Key"):
        raise ProtocolError(f"{type(key).__name__} is not the key of a coordinator record")
    return _PREFIX.pack(key.API_KEY) + key.encode(_KEY_VERSION)


def encode_value(value: Message, version: int) -> bytes:
    """A record's value. ProtocolError when `value` is no coordinator value or the version cannot hold it."""
    if value.API_KEY is None or not type(value).__name__.endswith("Value"):
        raise ProtocolError(f"{type(value).__name__} is not the value of a coordinator record")
    return value_prefix(version) + value.encode(version)


def value_prefix(version: int) -> bytes:
    """The bytes in front of a value's body."""
    return _PREFIX.pack(version)


def decode(namespace: str, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """One record of a namespace's topic.

    UnknownRecordTypeError for a type of a newer release; ProtocolError for an unknown value version or malformed bytes.
    """
    if namespace not in COORDINATOR_NAMESPACES:
        raise ProtocolError(
            f"{namespace!r} is not a namespace of coordinator records: {', '.join(COORDINATOR_NAMESPACES)}"
        )
    if key is None:
        raise ProtocolError(f"a record of the {namespace} coordinator has no key")
    record_type = _prefix(key, "key")
    key_class = record_class(namespace, "coordinator-key", record_type)
    value_class = record_class(namespace, "coordinator-value", record_type)
    if key_class is None or value_class is None:
        raise UnknownRecordTypeError(f"record type {record_type} of the {namespace} coordinator is unknown")
    decoded_key, _ = key_class.decode(_KEY_VERSION, key, _PREFIX.size)
    if value is None:
        return CoordinatorRecord(decoded_key, None, None)
    version = _prefix(value, "value")
    decoded_value, _ = value_class.decode(version, value, _PREFIX.size)
    return CoordinatorRecord(decoded_key, decoded_value, version)


def _prefix(data: bytes, what: str) -> int:
    if len(data) < _PREFIX.size:
        raise ProtocolError(f"a coordinator record's {what} has {len(data)} bytes; it begins with an int16")
    prefix: int = _PREFIX.unpack_from(data)[0]
    return prefix
