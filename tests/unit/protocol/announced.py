"""Bodies that are minimal up to one array or section of tagged fields, whose announced number the caller chooses.

Written from the schema with nothing of the codecs but varints: what is under test does not make its own input.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pybroker.protocol import definitions
from pybroker.protocol.definitions import FIXED_FORMATS, FieldDef, MessageDef, StructDef
from pybroker.protocol.runtime import uvarint

#: A place in a message: attributes from the body down; "#" at the end is the section of tagged fields there.
Path = tuple[str, ...]
SECTION = "#"

#: Enough for what the elements around the place need at least.
_PADDING_BYTES = 64


class Announced(NamedTuple):
    """A body that ends with the announced number at `path`, and some zeros."""

    message: str
    version: int
    path: Path
    body: bytes


def arrays(message: MessageDef, version: int) -> Iterator[Path]:
    """The path of each array of a message."""
    return (path for path in _places(message, version, message.body, ()) if path[-1] != SECTION)


def sections(message: MessageDef, version: int) -> Iterator[Path]:
    """The path of each section of tagged fields."""
    return (path for path in _places(message, version, message.body, ()) if path[-1] == SECTION)


def announcing(name: str, version: int, path: Path, count: int) -> Announced:
    """The body of a message that announces `count` elements, or tagged fields, at `path`, and ends there."""
    message = definitions.message(name)
    body = _Body(message, version, count)
    body.struct(message.body, path)
    return Announced(name, version, path, bytes(body.out + bytes(_PADDING_BYTES)))


def _places(message: MessageDef, version: int, within: StructDef, above: Path) -> Iterator[Path]:
    for field in within.fields:
        if version not in field.versions:
            continue
        path = (*above, field.attribute)
        if field.is_array:
            yield path
        if field.struct is not None and above.count(field.attribute) == 0:
            yield from _places(message, version, field.struct, path)
    if message.is_flexible(version):
        yield (*above, SECTION)


class _Stop(Exception):
    """The announced number is written."""


class _Body:
    def __init__(self, message: MessageDef, version: int, count: int) -> None:
        self.out = bytearray()
        self._message = message
        self._version = version
        self._count = count
        self._flexible = message.is_flexible(version)

    def struct(self, definition: StructDef, path: Path) -> None:
        try:
            self._struct(definition, path)
        except _Stop:
            return
        raise AssertionError(f"{self._message.name} v{self._version} has no {path}")

    def _struct(self, definition: StructDef, path: Path) -> None:
        tagged = []
        for field in definition.fields:
            if self._version not in field.versions:
                continue
            if self._flexible and self._version in field.tagged:
                tagged.append(field)
                continue
            self._field(field, path[1:] if path and path[0] == field.attribute else None)
        if self._flexible:
            self._section(tagged, path)

    def _section(self, tagged: list[FieldDef], path: Path) -> None:
        if path == (SECTION,):
            self.out += uvarint(self._count)
            raise _Stop
        wanted = [field for field in tagged if path and path[0] == field.attribute]
        if not wanted:
            self.out += b"\0"
            return
        # The value is not all there, and its size says that it might be.
        self.out += b"\1" + uvarint(wanted[0].tag)
        before, self.out = self.out, bytearray()
        try:
            self._field(wanted[0], path[1:], tagged=True)
        finally:
            self.out = before + uvarint(len(self.out)) + self.out

    def _field(self, field: FieldDef, path: Path | None, *, tagged: bool = False) -> None:
        compact = self._flexible and not field.never_flexible
        if field.is_array:
            self._array(field, path, compact)
        elif field.struct is not None:
            if self._version in field.nullable:
                self.out += (
                    (b"\1" if path is not None else b"\0") if tagged else (b"\1" if path is not None else b"\xff")
                )
                if path is None:
                    return
            self._struct(field.struct, path or ())
        elif field.type in FIXED_FORMATS:
            self.out += bytes(struct.calcsize(">" + FIXED_FORMATS[field.type]))
        else:
            self._length(0, compact, "h" if field.type == "string" else "i")

    def _array(self, field: FieldDef, path: Path | None, compact: bool) -> None:
        if path is None:
            self._length(0, compact, "i")
        elif not path:
            self._length(self._count, compact, "i")
            raise _Stop
        else:
            assert field.struct is not None
            self._length(1, compact, "i")
            self._struct(field.struct, path)

    def _length(self, length: int, compact: bool, form: str) -> None:
        self.out += uvarint(length + 1) if compact else struct.pack(">" + form, length)
