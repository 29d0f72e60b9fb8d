"""Metadata records (KRaft): the frame around each record's value in the metadata log and its snapshots.

A value is the frame version, the record type (the schema's API key) and the record version as unsigned varints, then
the body.
"""

from __future__ import annotations

from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.loader import record_class
from pybroker.protocol.runtime import Message, read_uvarint, uvarint

FRAME_VERSION = 1


def encode(record: Message, version: int) -> bytes:
    """A record's value. ProtocolError when `record` is no metadata record or the version cannot hold it."""
    if record.API_KEY is None or record_class("metadata", "metadata", record.API_KEY) is not type(record):
        raise ProtocolError(f"{type(record).__name__} is not a metadata record")
    return uvarint(FRAME_VERSION) + uvarint(record.API_KEY) + uvarint(version) + record.encode(version)


def decode(value: bytes | bytearray | memoryview) -> tuple[Message, int]:
    """(record, its version). ProtocolError names an unknown frame version, record type or record version, and malformed
    bytes.
    """
    data = bytes(value)
    try:
        frame_version, position = read_uvarint_at(data, 0)
        api_key, position = read_uvarint_at(data, position)
        version, position = read_uvarint_at(data, position)
    except IndexError:
        raise ProtocolError(f"a metadata record's frame is cut short after {len(data)} bytes") from None
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"metadata record frame version {frame_version} is unknown; only {FRAME_VERSION} is")
    kind = record_class("metadata", "metadata", api_key)
    if kind is None:
        raise ProtocolError(f"metadata record type {api_key} (version {version}) is unknown")
    record, end = kind.decode(version, data, position)
    if end != len(data):
        raise ProtocolError(f"{kind.__name__} v{version} is followed by {len(data) - end} bytes of garbage")
    return record, version


def read_uvarint_at(data: bytes, position: int) -> tuple[int, int]:
    """(value, next position) of the unsigned varint at `position`; IndexError when it is cut short."""
    first = data[position]
    return (first, position + 1) if first < 128 else read_uvarint(data, position + 1, first)
