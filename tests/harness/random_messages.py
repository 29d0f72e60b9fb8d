"""Random values for any message of the protocol, from a seeded source: for tests that compare codecs.

Fields that the version lacks keep their defaults, so what is made can be encoded at that version and read back equal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pybroker.protocol import definitions
from pybroker.protocol.definitions import FieldDef, StructDef
from pybroker.protocol.loader import message_class
from pybroker.protocol.runtime import Message

_INT_BITS = {"int8": (8, True), "int16": (16, True), "int32": (32, True), "int64": (64, True)}
_UINT_BITS = {"uint16": (16, False), "uint32": (32, False)}
_ALPHABET = "abcXYZ019-_. äß€𝄞"
_LENGTHS = (0, 0, 1, 1, 2, 5, 20, 40, 126, 127, 128, 300)

Choose = Callable[[random.Random, FieldDef], Any]


def random_int(source: random.Random, type_name: str) -> int:
    """An integer of the type: often an edge or a small one."""
    bits, signed = {**_INT_BITS, **_UINT_BITS}[type_name]
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = (0, 1, lowest, highest, max(lowest, -1), min(highest, 127), min(highest, 128))
    return source.choice(edges) if source.random() < 0.5 else source.randint(lowest, highest)


def random_scalar(source: random.Random, field: FieldDef) -> Any:
    """A value of a field's (element) type, of any size and sign."""
    if field.type == "bool":
        return source.random() < 0.5
    if field.type == "float64":
        return source.uniform(-1e9, 1e9)
    if field.type == "uuid":
        return source.randbytes(16)
    if field.type == "string":
        return "".join(source.choices(_ALPHABET, k=source.choice(_LENGTHS)))
    if field.type in ("bytes", "records"):
        return source.randbytes(source.choice(_LENGTHS))
    return random_int(source, field.type)


class RandomMessages:
    """Makes messages from one seed. `choose` may narrow the scalars, for a peer that does not take every value."""

    def __init__(self, seed: int, choose: Choose = random_scalar) -> None:
        self._source = random.Random(seed)
        self._choose = choose

    def message(self, name: str, version: int) -> Message:
        """A message with random values in the fields that `version` has."""
        definition = definitions.message(name)
        made = self._struct(message_class(name), definition.body, name, version)
        assert isinstance(made, Message)
        return made

    def _struct(self, cls: type[Any], definition: StructDef, name: str, version: int) -> Any:
        values = {
            field.attribute: self._value(field, name, version)
            for field in definition.fields
            if version in field.versions and (version not in field.tagged or self._source.random() < 0.7)
        }
        return cls(**values)

    def _value(self, field: FieldDef, name: str, version: int) -> Any:
        if version in field.nullable and self._source.random() < 0.25:
            return None
        if field.is_array:
            return [self._element(field, name, version) for _ in range(self._source.choice((0, 1, 1, 2, 3)))]
        return self._element(field, name, version)

    def _element(self, field: FieldDef, name: str, version: int) -> Any:
        if field.struct is None:
            return self._choose(self._source, field)
        cls = getattr(message_class(name), field.struct.name)
        return self._struct(cls, field.struct, name, version)
