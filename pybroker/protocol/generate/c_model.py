"""How a message looks in C: names, types, defaults, and the version conditions of the generated readers and writers."""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.protocol.definitions import (
    FIXED_FORMATS,
    FieldDef,
    MessageDef,
    SchemaError,
    StructDef,
    Versions,
    snake_case,
)

C_TYPES = {
    "bool": "bool",
    "int8": "int8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "float64": "double",
    "uuid": "pb_uuid",
    "string": "pb_slice",
    "bytes": "pb_slice",
    "records": "pb_slice",
}
FIXED_BYTES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}


class CMessage:
    """One message with its C names. Structs come out in an order in which C can declare them."""

    def __init__(self, definition: MessageDef) -> None:
        self.definition = definition
        self.stem = snake_case(definition.name)
        for struct in self.structs():
            for field in struct.fields:
                if field.struct is not None and not field.is_array and field.may_be_null:
                    raise SchemaError(f"{definition.name}.{field.name}: a nullable struct has no C form")
                if field.is_array and field.type in ("string", "bytes", "records") and field.may_be_null:
                    raise SchemaError(f"{definition.name}.{field.name}: a nullable array of {field.type} has no C form")

    def type_name(self, struct: StructDef) -> str:
        """`pb_fetch_request` for the body, `pb_fetch_request_fetch_topic` for a struct in it."""
        if struct is self.definition.body:
            return f"pb_{self.stem}"
        return f"pb_{self.stem}_{snake_case(struct.name)}"

    def structs(self) -> Iterator[StructDef]:
        """Every struct, those that others hold first; the body last."""
        done: set[str] = set()

        def walk(struct: StructDef) -> Iterator[StructDef]:
            for field in struct.fields:
                if field.struct is not None and field.struct.name not in done:
                    yield from walk(field.struct)
            done.add(struct.name)
            yield struct

        return walk(self.definition.body)

    def element_type(self, field: FieldDef) -> str:
        return C_TYPES[field.type] if field.struct is None else self.type_name(field.struct)

    def condition(self, versions: Versions) -> str | None:
        """C condition that `version` lies in `versions`; None when it always does, "false" when it never does."""
        valid = self.definition.versions
        lowest, highest = max(versions.lowest, valid.lowest), min(versions.highest, valid.highest)
        if lowest > highest:
            return "false"
        parts = []
        if lowest > valid.lowest:
            parts.append(f"version >= {lowest}")
        if highest < valid.highest:
            parts.append(f"version <= {highest}")
        return " && ".join(parts) or None

    def condition_text(self, versions: Versions) -> str:
        """Like `condition`, as an expression in every case."""
        return self.condition(versions) or "true"

    def compact(self, field: FieldDef) -> str:
        """C expression of whether the field's lengths are varints."""
        return "false" if field.never_flexible else "flexible"

    def has_arrays(self) -> bool:
        return any(field.is_array for struct in self.structs() for field in struct.fields)

    def least_bytes(self, field: FieldDef) -> int:
        """The fewest bytes an element of an array takes at any version; at least 1."""
        valid = self.definition.versions
        versions = range(valid.lowest, valid.highest + 1)
        return max(1, min(self._element_bytes(field, v) for v in versions if v in field.versions))

    def _element_bytes(self, field: FieldDef, version: int) -> int:
        if field.struct is not None:
            return self._struct_bytes(field.struct, version)
        return FIXED_BYTES.get(field.type, 1)

    def _struct_bytes(self, struct: StructDef, version: int) -> int:
        flexible = self.definition.is_flexible(version)
        total = 1 if flexible else 0
        for field in struct.fields:
            if version not in field.versions or version in field.tagged:
                continue
            if field.is_array or (field.type not in FIXED_FORMATS and field.struct is None):
                plain = 2 if field.type == "string" and not field.is_array else 4
                total += 1 if flexible and not field.never_flexible else plain
            else:
                total += self._element_bytes(field, version)
        return total

    def is_not_default(self, expression: str, field: FieldDef) -> str:
        """C condition that a field does not hold its default."""
        if field.is_array:
            return f"{expression}_count {'>= 0' if field.default_is_null else '!= 0'}"
        if field.struct is not None:
            return f"!is_default_{snake_case(field.struct.name)}(&{expression})"
        if field.type in ("string", "bytes", "records"):
            if field.default:
                return f"{expression}.length >= 0" if field.default_is_null else _text_differs(expression, field)
            return f"{expression}.length != 0"
        if field.type == "uuid":
            return f"!pb_uuid_is_zero(&{expression})"
        return f"{expression} != {c_default(field)}"


def _text_differs(expression: str, field: FieldDef) -> str:
    return f'!pb_slice_equal({expression}, pb_slice_of_text("{field.default}"))'


def c_default(field: FieldDef) -> str:
    """C expression of the default of a scalar, string or bytes field."""
    if field.type in ("string", "bytes", "records"):
        if field.default_is_null:
            return "PB_NULL_SLICE"
        return f'pb_slice_of_text("{field.default}")' if field.default else "PB_EMPTY_SLICE"
    if field.type == "bool":
        return field.default or "false"
    if field.type == "uuid":
        return "(pb_uuid){{0}}"
    if field.type == "float64":
        return repr(float(field.default or "0"))
    value = field.int_default()
    if value == -(2**63):
        return "INT64_MIN"
    return f"INT64_C({value})" if field.type == "int64" and abs(value) > 0x7FFFFFFF else str(value)
