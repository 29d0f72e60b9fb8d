"""A small writer of Python source, and the run of fixed-width values that both codec generators gather."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

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


# So many elements are read or written before a codec in slices lets itself be interrupted.
SLICE_COUNT = 100

# Arrays of fixed-width items with fewer items than this have a `struct` format of their own, kept.
SMALL_ARRAY_COUNT = 127


class SizedStructs(dict[int, Callable[..., Any]]):
    """Item count -> `struct` method for some fixed-width values and that many items; made at first use."""

    def __init__(self, method: str, prefix: str, item: str) -> None:
        super().__init__()
        self._method = method
        self._prefix = prefix
        self._item = item

    def __missing__(self, count: int) -> Callable[..., Any]:
        made: Callable[..., Any] = getattr(struct.Struct(f">{self._prefix}{count}{self._item}"), self._method)
        self[count] = made
        return made


class StructNames:
    """Names of the `struct.Struct` methods that generated code uses, by format; `namespace` defines them."""

    def __init__(self, method: str) -> None:
        self.namespace: dict[str, object] = {}
        self._method = method

    def name(self, form: str) -> str:
        name = "S_" + form.replace("?", "T")
        self.namespace[name] = getattr(struct.Struct(">" + form), self._method)
        return name

    def sized_name(self, prefix: str, item: str) -> str:
        """Name of the methods, by item count, for `prefix` followed by an array of `item`."""
        name = f"A_{prefix}_{item}".replace("?", "T")
        self.namespace.setdefault(name, SizedStructs(self._method, prefix, item))
        return name


def is_compact(message: MessageDef, field: FieldDef, version: int) -> bool:
    """Whether the field's lengths are varints at this version (KIP-482)."""
    return message.is_flexible(version) and not field.never_flexible
