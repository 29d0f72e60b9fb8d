"""The fixed-width fields that a message begins or ends with, as one `struct`.

Where messages differ in these alone, one is encoded whole. The others are its bytes with other fields in front of them,
or behind. The layout comes from the schema. Pure.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable

from pybroker.protocol import definitions
from pybroker.protocol.definitions import FIXED_FORMATS, FieldDef
from pybroker.values import Value


class FixedFields(Value):
    """Neighbouring fields by attribute name, and how their values are packed."""

    attributes: tuple[str, ...]
    layout: struct.Struct


def leading(message_name: str, version: int) -> FixedFields:
    """The fields before the first one of variable width; maybe none."""
    return _packed(_until_variable(_present(message_name, version)))


def trailing(message_name: str, version: int) -> FixedFields:
    """The fields after the last one of variable width; none in flexible versions, which end in tagged fields."""
    if definitions.message(message_name).is_flexible(version):
        return _packed([])
    return _packed(_until_variable(reversed(_present(message_name, version)))[::-1])


def _present(message_name: str, version: int) -> list[FieldDef]:
    fields = definitions.message(message_name).body.fields
    return [field for field in fields if version in field.versions and version not in field.tagged]


def _until_variable(fields: Iterable[FieldDef]) -> list[FieldDef]:
    return list(itertools.takewhile(lambda field: not field.is_array and field.type in FIXED_FORMATS, fields))


def _packed(fields: list[FieldDef]) -> FixedFields:
    layout = struct.Struct(">" + "".join(FIXED_FORMATS[field.type] for field in fields))
    return FixedFields(tuple(field.attribute for field in fields), layout)
