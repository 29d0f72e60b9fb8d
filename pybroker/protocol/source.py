"""A small writer of Python source, and the run of fixed-width values that both codec generators gather."""

from __future__ import annotations

import struct

from pybroker.protocol.definitions import FieldDef, MessageDef


class SourceWriter:
    """Lines of source with an indent, and fresh variable names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = 0
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class StructNames:
    """Names of the `struct.Struct` methods that generated code uses, by format; `namespace` defines them."""

    def __init__(self, method: str) -> None:
        self.namespace: dict[str, object] = {}
        self._method = method

    def name(self, form: str) -> str:
        name = "S_" + form.replace("?", "T")
        self.namespace[name] = getattr(struct.Struct(">" + form), self._method)
        return name


def is_compact(message: MessageDef, field: FieldDef, version: int) -> bool:
    """Whether the field's lengths are varints at this version (KIP-482)."""
    return message.is_flexible(version) and not field.never_flexible
