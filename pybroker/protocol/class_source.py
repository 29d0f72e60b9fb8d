"""Python source of the constructors of messages: keywords alone, with Kafka's defaults."""

from __future__ import annotations

from pybroker.protocol.definitions import FieldDef, StructDef


def default_source(field: FieldDef, message_name: str) -> str:
    """The expression of a field's default, in terms of the message class's name."""
    if field.default_is_null:
        return "None"
    if field.is_array:
        return "[]"
    if field.struct is not None:
        return f"{message_name}.{field.struct.name}()"
    return _scalar_default(field)


def _scalar_default(field: FieldDef) -> str:
    if field.type == "string":
        return repr(field.default or "")
    if field.type in ("bytes", "records"):
        return "b''"
    if field.type == "uuid":
        return "ZERO_UUID"
    if field.type == "bool":
        return str(field.default == "true")
    if field.type == "float64":
        return repr(float(field.default or "0"))
    return str(field.int_default())


def is_mutable_default(field: FieldDef) -> bool:
    """Whether every message needs a default object of its own."""
    return not field.default_is_null and (field.is_array or field.struct is not None)


def init_source(struct: StructDef, message_name: str) -> str:
    """Source of `__init__`; the namespace it runs in holds the message's class by its name, UNSET and ZERO_UUID."""
    parameters, lines = [], []
    for field in struct.fields:
        name, default = field.attribute, default_source(field, message_name)
        if is_mutable_default(field):
            parameters.append(f"{name}=UNSET")
            lines.append(f"    self.{name} = {default} if {name} is UNSET else {name}\n")
        else:
            parameters.append(f"{name}={default}")
            lines.append(f"    self.{name} = {name}\n")
    keywords = f", *, {', '.join(parameters)}" if parameters else ""
    return f"def __init__(self{keywords}):\n{''.join(lines) or '    pass'}"
