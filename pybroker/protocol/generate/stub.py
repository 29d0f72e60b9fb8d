"""Writes `messages.pyi`: the types of all message classes, for mypy and for editors."""

from __future__ import annotations

from pybroker.protocol.definitions import FieldDef, MessageDef, StructDef, all_messages

SCALARS = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes",
    "uuid": "bytes",
}

HEAD = '''\
"""Types of the message classes. Written by `python -m pybroker.protocol.generate stub`; not edited by hand."""

from typing import ClassVar

from pybroker.protocol.loader import ApiInfo as ApiInfo
from pybroker.protocol.loader import apis as apis
from pybroker.protocol.loader import message_class as message_class
from pybroker.protocol.loader import request_class as request_class
from pybroker.protocol.loader import request_header_version as request_header_version
from pybroker.protocol.loader import response_class as response_class
from pybroker.protocol.loader import response_header_version as response_header_version
from pybroker.protocol.runtime import Message as Message
from pybroker.protocol.runtime import Struct as Struct
'''


def _type(field: FieldDef, message_name: str) -> str:
    element = SCALARS.get(field.type, "int") if field.struct is None else f"{message_name}.{field.struct.name}"
    whole = f"list[{element}]" if field.is_array else element
    return f"{whole} | None" if field.may_be_null or field.default_is_null else whole


def _struct_lines(struct: StructDef, message_name: str, base: str) -> list[str]:
    lines = [f"class {struct.name}({base}):"]
    for field in struct.fields:
        lines.append(f"    {field.attribute}: {_type(field, message_name)}")
    if struct.fields:
        lines += ["    def __init__(", "        self,", "        *,"]
        for field in struct.fields:
            lines.append(f"        {field.attribute}: {_type(field, message_name)} = ...,")
        lines.append("    ) -> None: ...")
    return lines


def _message_lines(message: MessageDef) -> list[str]:
    lines = _struct_lines(message.body, message.name, "Message")
    if message.api_key is not None:
        lines.append("    API_KEY: ClassVar[int]")
    if message.flexible:
        lines.append("    FLEXIBLE_MIN_VERSION: ClassVar[int]")
    for struct in message.structs.values():
        lines += ["", *("    " + line for line in _struct_lines(struct, message.name, "Struct"))]
    if len(lines) == 1:
        lines[0] += " ..."
    return lines


def stub_source() -> str:
    """Text of `messages.pyi`."""
    parts = [HEAD]
    for message in all_messages():
        if message.versions:
            parts.append("\n".join(_message_lines(message)) + "\n")
    return "\n".join(parts)
