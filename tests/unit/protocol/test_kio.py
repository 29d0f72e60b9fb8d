"""Requests and responses of every version against kio, an independent codec: both directions, bytes and values.

PYBROKER_CODEC_ROUNDS sets how many random messages each version gets (default 1).
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import os
import random
import uuid
from typing import Any

import pytest

from pybroker.protocol import definitions
from pybroker.protocol.definitions import FieldDef, StructDef
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.loader import ApiInfo, apis, message_class, request_header_version, response_header_version
from tests.harness.random_messages import RandomMessages, random_scalar

kio_index = pytest.importorskip("kio.index")
kio_serial = pytest.importorskip("kio.serial")

#: Messages of Apache Kafka 4.4 that kio 0.6.5 does not know: API key to the first version. The jars are their oracle
#: (tests/kafka/test_message_codecs.py).
UNKNOWN_TO_KIO = {18: 5, 28: 6, 42: 3, 88: 1, 89: 1, 93: 0, 94: 0}
KNOWN_ERROR_CODES = [code for code in ErrorCode if code < ErrorCode.GROUP_DELETION_FAILED]
ROUNDS = int(os.environ.get("PYBROKER_CODEC_ROUNDS", "1"))
MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def value_for_kio(source: random.Random, field: FieldDef) -> Any:
    """Like random_scalar, within what kio's types for times and error codes can hold."""
    if field.type == "int16" and field.attribute.endswith("error_code"):
        return int(source.choice(KNOWN_ERROR_CODES))
    if field.type in ("int32", "int64") and ("time" in field.attribute or field.attribute.endswith("_ms")):
        return source.randrange(1 << 31)
    return random_scalar(source, field)


def plain(value: Any) -> Any:
    """A value of kio's in the types that ours have."""
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, enum.IntEnum):
        return int(value)
    return value


def assert_same(ours: Any, theirs: Any, field: FieldDef, version: int, where: str) -> None:
    if isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for index, (our_item, their_item) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(our_item, their_item, field, version, f"{where}[{index}]")
    elif field.struct is not None and ours is not None:
        assert_same_struct(ours, theirs, field.struct, version, where)
    elif ours is None or theirs is None:
        assert_same_nothing(ours, theirs, field, where)
    else:
        assert plain(theirs) == ours, where


def assert_same_nothing(ours: Any, theirs: Any, field: FieldDef, where: str) -> None:
    """None stands for null; kio also shows the zero uuid and the time -1 as None."""
    nothing = {"uuid": (None, bytes(16)), "int64": (None, -1)}.get(field.type, (None,))
    assert theirs is None and ours in nothing, where


def assert_same_struct(ours: Any, theirs: Any, struct: StructDef, version: int, where: str) -> None:
    """kio's dataclasses hold the fields of one version, in the schema's order."""
    fields = [field for field in struct.fields if version in field.versions]
    names = [item.name for item in dataclasses.fields(theirs) if not item.name.startswith("__")]
    assert len(fields) == len(names), f"{where}: {names}"
    for field, name in zip(fields, names, strict=True):
        assert_same(getattr(ours, field.attribute), getattr(theirs, name), field, version, f"{where}.{name}")


@pytest.mark.parametrize("api", apis().values(), ids=lambda api: api.name)
@pytest.mark.parametrize("kind", ["Request", "Response"])
def test_same_bytes_and_values_as_kio(api: ApiInfo, kind: str) -> None:
    name = api.name + kind
    load = kio_index.load_request_schema if kind == "Request" else kio_index.load_response_schema
    for version in range(api.min_version, api.max_version + 1):
        if version >= UNKNOWN_TO_KIO.get(api.api_key, version + 1):
            with pytest.raises((KeyError, kio_index.UnknownAPIKey, kio_index.UnknownEntity)):
                load(api.api_key, version)
            continue
        schema = load(api.api_key, version)
        header_version = request_header_version if kind == "Request" else response_header_version
        assert schema.__header_schema__.__version__ == header_version(api.api_key, version)
        for seed in range(ROUNDS):
            ours = RandomMessages(seed, value_for_kio).message(name, version)
            body = ours.encode(version)
            theirs, end = kio_serial.entity_reader(schema)(body, 0)
            where = f"{name} v{version} {ours}"
            assert end == len(body), where
            assert_same_struct(ours, theirs, definitions.message(name).body, version, where)
            written = io.BytesIO()
            kio_serial.entity_writer(schema)(written, theirs)
            decoded, end = message_class(name).decode(version, written.getvalue())
            assert (decoded, end) == (ours, len(written.getvalue())), where
