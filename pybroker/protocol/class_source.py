"""Python source of message classes: slots, a keyword constructor with Kafka's defaults, nested structs."""

from __future__ import annotations

from pybroker.protocol.definitions import FieldDef, MessageDef, StructDef


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


def _struct_lines(struct: StructDef, message_name: str, base: str, indent: str) -> list[str]:
    slots = ", ".join(repr(field.attribute) for field in struct.fields)
    lines = [f"class {struct.name}({base}):", f"    __slots__ = ({slots}{',' if struct.fields else ''})"]
    if struct.fields:
        parameters = ", ".join(
            f"{field.attribute}={'UNSET' if is_mutable_default(field) else default_source(field, message_name)}"
            for field in struct.fields
        )
        lines.append(f"    def __init__(self, *, {parameters}):")
    for field in struct.fields:
        name = field.attribute
        if is_mutable_default(field):
            value = f"{default_source(field, message_name)} if {name} is UNSET else {name}"
        else:
            value = name
        lines.append(f"        self.{name} = {value}")
    return [indent + line for line in lines]


def class_source(message: MessageDef) -> str:
    """Source of the message class; the namespace it runs in holds Message, Struct, UNSET and ZERO_UUID."""
    lines = _struct_lines(message.body, message.name, "Message", "")
    flexible = message.flexible.lowest if message.flexible else None
    lines += [
        f"    API_KEY = {message.api_key}",
        f"    MIN_VERSION = {message.versions.lowest}",
        f"    MAX_VERSION = {message.versions.highest}",
        f"    FLEXIBLE_MIN_VERSION = {flexible}",
        f"    LATEST_VERSION_UNSTABLE = {message.latest_unstable}",
    ]
    for struct in message.structs.values():
        lines += _struct_lines(struct, message.name, "Struct", "    ")
    return "\n".join(lines) + "\n"
