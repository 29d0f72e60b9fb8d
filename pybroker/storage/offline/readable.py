"""Records as people read them: bytes as text, and the records of internal topics decoded. Pure."""

from __future__ import annotations

import math
import struct
from typing import Any

from pybroker.protocol import coordinator_records, metadata_records
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.record_batch import Record
from pybroker.protocol.runtime import Struct
from pybroker.protocol.uuids import uuid_to_text

GROUP, TRANSACTION, SHARE, METADATA = "group", "transaction", "share", "metadata"
DECODERS = (GROUP, TRANSACTION, SHARE, METADATA)
DECODER_OF_TOPIC = {
    "__consumer_offsets": GROUP,
    "__transaction_state": TRANSACTION,
    "__share_group_state": SHARE,
    "__cluster_metadata": METADATA,
}

_MARKERS = {0: "ABORT", 1: "COMMIT"}
_CONTROL_RECORDS = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}
_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_UUID_BYTES = 16


def text(data: bytes | None) -> str | None:
    """Bytes as text: UTF-8 where it is, and escapes such as \\x00 where it is not or cannot be printed."""
    if data is None:
        return None
    decoded = data.decode("utf-8", errors="backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in decoded)


def plain(value: Any, name: str = "") -> Any:
    """A message, or a part of one, as what JSON has. Bytes that are a uuid become Kafka's text of it."""
    if isinstance(value, Struct):
        return {each: plain(getattr(value, each), each) for each in value.__slots__}
    if isinstance(value, list | tuple):
        return [plain(each, name) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        is_uuid = len(data) == _UUID_BYTES and name.rpartition("_")[2] in ("id", "ids", "dirs", "directories")
        return uuid_to_text(data) if is_uuid else text(data)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def decode(record: Record, *, is_control: bool, decoder: str | None) -> dict[str, Any]:
    """Key and value, decoded where `decoder` or the control flag says how; `problem` when they cannot be."""
    try:
        if is_control:
            return _control(record)
        if decoder == METADATA and record.value is not None:
            message, version = metadata_records.decode(record.value)
            return {"record": type(message).__name__, "version": version, "value": plain(message)}
        if decoder in (GROUP, TRANSACTION, SHARE):
            found = coordinator_records.decode(decoder, record.key, record.value)
            value = None if found.value is None else plain(found.value)
            name = type(found.key).__name__.removesuffix("Key")
            return {"record": name, "version": found.value_version, "key": plain(found.key), "value": value}
    except (ProtocolError, struct.error) as error:
        return {"key": text(record.key), "value": text(record.value), "problem": str(error)}
    return {"key": text(record.key), "value": text(record.value)}


def _control(record: Record) -> dict[str, Any]:
    if record.key is None or record.value is None:
        raise ProtocolError("a control record without key or value")
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    if kind in _MARKERS:
        version, epoch = _MARKER_VALUE.unpack_from(record.value)
        return {"record": _MARKERS[kind], "version": version, "value": {"coordinator_epoch": epoch}}
    name = _CONTROL_RECORDS.get(kind)
    if name is None:
        raise ProtocolError(f"unknown control record type {kind}")
    # Each of these bodies begins with its own version.
    (version,) = struct.unpack_from(">h", record.value)
    message, _ = getattr(m, name).decode(version, record.value, 0)
    return {"record": name, "version": version, "value": plain(message)}


def raw(record: Record) -> dict[str, Any]:
    """Key and value in hexadecimal."""
    key, value = record.key, record.value
    return {"key": None if key is None else key.hex(), "value": None if value is None else value.hex()}
