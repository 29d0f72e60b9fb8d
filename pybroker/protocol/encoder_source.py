"""Generates the encoders of messages: Python source of straight-line code for one version of one message.

The generated function is `encode(o) -> bytes`. It gathers pieces in a list and joins them once. One `struct` call packs
neighbouring fixed-width fields, and with them the first byte of the length, count or tag section that follows.

An encoder "in slices" is for large messages. It is a generator with the same code that yields the bytes in parts, one
part for every `SLICE_COUNT` elements.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from pybroker.protocol import runtime
from pybroker.protocol.class_source import default_source
from pybroker.protocol.definitions import FIXED_FORMATS, FieldDef, MessageDef, StructDef
from pybroker.protocol.source import SLICE_COUNT, SMALL_ARRAY_COUNT, SourceWriter, StructNames, is_compact
from pybroker.protocol.uuids import ZERO_UUID

# A compact length is the length plus one as a varint. A varint of one byte is at most 127, so such a length is below
# this.
ONE_BYTE_LENGTH = 127
ERROR_TEXT_SUFFIX = "ErrorMessage"


def _encoded(value: str, field: FieldDef) -> str:
    """An expression for the bytes of a string. An error text may contain what a client sent, so it is cut to a length
    that fits."""
    return f"error_text({value})" if field.name.endswith(ERROR_TEXT_SUFFIX) else f"{value}.encode()"


class EncoderSource:
    """Writes the source of the encoder of `message` at `version`. `exec` takes `text()` and `namespace`."""

    def __init__(self, message: MessageDef, version: int, *, in_slices: bool = False) -> None:
        self._message = message
        self._in_slices = in_slices
        self._version = version
        self._flexible = message.is_flexible(version)
        self._out = SourceWriter()
        self._structs = StructNames("pack")
        self._run: list[tuple[str, str]] = []
        self._write = "w"
        self._body()

    def text(self) -> str:
        return self._out.text()

    @property
    def namespace(self) -> dict[str, object]:
        return self._structs.namespace

    def _body(self) -> None:
        out = self._out
        out.line("def encode(o):")
        out.indent += 1
        out.line("parts = []")
        out.line("w = parts.append")
        if self._in_slices:
            out.line(f"k = {SLICE_COUNT}")
        self._struct("o", self._message.body)
        self._flush()
        out.line(f"{'yield' if self._in_slices else 'return'} join(parts)")

    def _interrupt(self, work: str = "1") -> None:
        """In slices, write the code that counts `work` elements and yields when the slice is full. Inside a tagged
        field it yields no bytes: they are kept until the size of the field is known."""
        if not self._in_slices:
            return
        out = self._out
        out.line(f"k -= {work}")
        out.line("if k < 0:")
        out.indent += 1
        out.line(f"k = {SLICE_COUNT}")
        if self._write == "w":
            out.line("yield join(parts)")
            out.line("parts.clear()")
        else:
            out.line("yield b''")
        out.indent -= 1

    # A run is a sequence of fixed-width values that one `struct` call packs. `_add` gathers it, and `_flush` writes the
    # call. The values of its expressions must not change in between.

    def _add(self, form: str, expression: str = "") -> None:
        """Add a value to the run: a `struct` format and an expression. The format "x" is a zero byte without an
        expression."""
        self._run.append((form, expression))

    def _packed(self, form: str = "", expression: str = "", suffix: str = "") -> str:
        """One bytes expression for the run, followed by one more value and by the bytes expression `suffix`. Keeps the
        run."""
        run = [*self._run, (form, expression)] if form else self._run
        forms = "".join(part for part, _ in run)
        pieces = []
        if forms == "B":
            pieces.append(f"ONE_BYTE[{run[0][1]}]")
        elif set(forms) == {"x"}:
            pieces.append(repr(bytes(len(forms))))
        elif run:
            arguments = ", ".join(value for _, value in run if value)
            pieces.append(f"{self._structs.name(forms)}({arguments})")
        return " + ".join([*pieces, suffix] if suffix else pieces)

    def _emit(self, form: str = "", expression: str = "", suffix: str = "") -> None:
        packed = self._packed(form, expression, suffix)
        if packed:
            self._out.line(f"{self._write}({packed})")

    def _flush(self) -> None:
        self._emit()
        self._run.clear()

    def _struct(self, name: str, definition: StructDef) -> None:
        """Write the code for the struct in the variable `name`. Its last values may be left in the run."""
        tagged, plain = [], []
        for field in definition.fields:
            if self._version not in field.versions:
                self._absent(f"{name}.{field.attribute}", field)
            elif self._flexible and self._version in field.tagged:
                tagged.append(field)
            else:
                plain.append(field)
        closes_section = self._flexible and not tagged and bool(plain) and self._is_string(plain[-1])
        for field in plain:
            if closes_section and field is plain[-1]:
                self._string(f"{name}.{field.attribute}", field, self._version in field.nullable, empty_section=True)
            else:
                self._field(f"{name}.{field.attribute}", field)
        if self._flexible and not closes_section:
            self._tags(name, sorted(tagged, key=lambda item: item.tag))

    def _is_string(self, field: FieldDef) -> bool:
        return field.type == "string" and not field.is_array and is_compact(self._message, field, self._version)

    def _is_not_default(self, expression: str, field: FieldDef) -> str:
        if field.default_is_null:
            return f"{expression} is not None"
        if field.is_array:
            return f"{expression} is None or {expression}" if field.may_be_null else expression
        if field.type in ("bytes", "records"):
            return f"{expression} is None or len({expression})"
        return f"{expression} != {default_source(field, self._message.name)}"

    def _absent(self, expression: str, field: FieldDef) -> None:
        """Write the check of a field that the version lacks: unless the field is ignorable, it must have its default
        value."""
        if not field.ignorable:
            self._out.line(f"if {self._is_not_default(expression, field)}: fail_unsupported({field.name!r})")

    def _tags(self, name: str, tagged: list[FieldDef]) -> None:
        out = self._out
        if not tagged:
            self._add("x")
            return
        section = out.fresh("g")
        out.line(f"{section} = []")
        outer_run, outer_write = self._run, self._write
        for field in tagged:
            expression = f"{name}.{field.attribute}"
            out.line(f"if {self._is_not_default(expression, field)}:")
            out.indent += 1
            pieces, value = out.fresh("q"), out.fresh("v")
            self._run, self._write = [], f"{pieces}.append"
            out.line(f"{pieces} = []")
            self._field(expression, field, tagged=True)
            self._flush()
            out.line(f"{value} = join({pieces})")
            out.line(f"{section}.append({runtime.uvarint(field.tag)!r} + uvarint(len({value})) + {value})")
            out.indent -= 1
        self._run, self._write = outer_run, outer_write
        self._add("B", f"len({section})")
        self._flush()
        out.line(f"if {section}: {self._write}(join({section}))")

    def _field(self, expression: str, field: FieldDef, *, tagged: bool = False) -> None:
        nullable = self._version in field.nullable
        if field.is_array:
            self._array(expression, field, nullable)
        elif field.struct is not None:
            self._nested(expression, field.struct, nullable, tagged)
        elif field.type == "uuid":
            self._uuid(expression, field)
        elif field.type in FIXED_FORMATS:
            self._add(FIXED_FORMATS[field.type], expression)
        elif field.type == "string":
            self._string(expression, field, nullable)
        else:
            self._bytes(expression, field, nullable)

    def _uuid(self, expression: str, field: FieldDef) -> None:
        self._out.line(f"if len({expression}) != 16: fail_uuid({field.name!r})")
        self._add("16s", expression)

    def _nested(self, expression: str, definition: StructDef, nullable: bool, tagged: bool) -> None:
        """Write the code for a nested struct. A nullable struct begins with 1. Null is the int8 -1, or the varint 0 in
        a tagged field."""
        out = self._out
        name = out.fresh("o")
        out.line(f"{name} = {expression}")
        if not nullable:
            self._struct(name, definition)
            return
        self._flush()
        out.line(f"if {name} is None:")
        out.line(f"    {self._write}({bytes((0 if tagged else 255,))!r})")
        out.line("else:")
        out.indent += 1
        self._add("b", "1")
        self._struct(name, definition)
        self._flush()
        out.indent -= 1

    def _null_or(self, value: str, field: FieldDef, compact: bool, nullable: bool, null_form: str) -> None:
        """Write `if VALUE is None:` with code that writes null, or that fails when null is not allowed. Then open the
        `else:` block for other values."""
        out = self._out
        out.line(f"if {value} is None:")
        out.indent += 1
        if nullable:
            self._emit("x" if compact else null_form, "" if compact else "-1")
        else:
            out.line(f"fail_null({field.name!r})")
        out.indent -= 1
        out.line("else:")
        out.indent += 1

    def _string(self, expression: str, field: FieldDef, nullable: bool, *, empty_section: bool = False) -> None:
        """Write the code for a string. With `empty_section` it also writes an empty section of tagged fields, one zero
        byte."""
        if is_compact(self._message, field, self._version):
            self._compact_string(expression, field, nullable, empty_section)
        else:
            self._plain_string(expression, field, nullable)
        self._run.clear()

    def _plain_string(self, expression: str, field: FieldDef, nullable: bool) -> None:
        out = self._out
        value = out.fresh("v")
        out.line(f"{value} = {expression}")
        self._null_or(value, field, False, nullable, "h")
        out.line(f"{value} = {_encoded(value, field)}")
        self._emit("h", f"len({value})", value)
        out.indent -= 1

    def _compact_string(self, expression: str, field: FieldDef, nullable: bool, empty_section: bool) -> None:
        out = self._out
        value, length = out.fresh("v"), out.fresh("n")
        tail_form, tail = ("Bx", " + b'\\0'") if empty_section else ("B", "")
        out.line(f"{value} = {expression}")
        if nullable:
            out.line(f"if not {value}:")
            out.indent += 1
            self._emit(tail_form, f"0 if {value} is None else 1")
            out.indent -= 1
            out.line("else:")
            out.indent += 1
        out.line(f"{value} = {_encoded(value, field)}")
        out.line(f"{length} = len({value})")
        out.line(f"if {length} < {ONE_BYTE_LENGTH}: {self._write}({self._packed('B', f'{length} + 1', value + tail)})")
        prefix = f"string_prefix({length}, {field.name!r}) + {value}{tail}"
        out.line(f"else: {self._write}({self._packed(suffix=prefix)})")
        if nullable:
            out.indent -= 1

    def _bytes(self, expression: str, field: FieldDef, nullable: bool) -> None:
        out = self._out
        value = out.fresh("v")
        compact = is_compact(self._message, field, self._version)
        out.line(f"{value} = {expression}")
        self._null_or(value, field, compact, nullable, "i")
        self._count(f"len({value})", compact)
        if self._in_slices and self._write == "w":
            start = out.fresh("s")
            out.line(f"if len({value}) > {runtime.LONG_BYTES}:")
            out.line("    yield join(parts)")
            out.line("    parts.clear()")
            out.line(f"    for {start} in range(0, len({value}), {runtime.LONG_BYTES}):")
            out.line(f"        yield {value}[{start}:{start} + {runtime.LONG_BYTES}]")
            out.line("else:")
            out.line(f"    w({value})")
            out.line(f"    k -= len({value}) >> 12")
        else:
            out.line(f"{self._write}({value})")
        out.indent -= 1
        self._run.clear()

    def _count(self, expression: str, compact: bool) -> None:
        """Write the code for the run, followed by a length or count. Keeps the run, because the branch for null writes
        it too."""
        if compact:
            self._emit(suffix=f"uvarint({expression} + 1)")
        else:
            self._emit("i", expression)

    def _fixed_array(self, items: str, form: str, compact: bool) -> None:
        """Write the code for the run, the count and the items of an array of numbers. Few items are packed by one
        call."""
        out = self._out
        count = out.fresh("n")
        out.line(f"{count} = len({items})")
        prefix = "".join(part for part, _ in self._run) + ("B" if compact else "i")
        values = [value for _, value in self._run if value] + [f"{count} + 1" if compact else count, f"*{items}"]
        packed = f"{self._structs.sized_name(prefix, form)}[{count}]({', '.join(values)})"
        out.line(f"if {count} < {SMALL_ARRAY_COUNT}:")
        out.line(f"    {self._write}({packed})")
        out.line("else:")
        out.indent += 1
        self._count(count, compact)
        if self._in_slices:
            out.line(f"for i in range(0, {count}, {runtime.AHEAD_COUNT}):")
            out.indent += 1
            out.line(f"u = {items}[i:i + {runtime.AHEAD_COUNT}]")
            out.line(f"{self._write}(pack(f'>{{len(u)}}{form}', *u))")
            self._interrupt(str(SLICE_COUNT + 1))
            out.indent -= 1
        else:
            out.line(f"{self._write}(pack(f'>{{{count}}}{form}', *{items}))")
        out.indent -= 1

    def _array(self, expression: str, field: FieldDef, nullable: bool) -> None:
        out = self._out
        items = out.fresh("l")
        out.line(f"{items} = {expression}")
        compact = is_compact(self._message, field, self._version)
        self._null_or(items, field, compact, nullable, "i")
        if field.type in FIXED_FORMATS and field.type != "uuid":
            self._fixed_array(items, FIXED_FORMATS[field.type], compact)
            self._run.clear()
            out.indent -= 1
            return
        self._count(f"len({items})", compact)
        self._run.clear()
        if field.type == "uuid":
            out.line(f"for u in {items}:")
            out.line(f"    if len(u) != 16: fail_uuid({field.name!r})")
            out.line(f"    {self._write}(u)")
            out.indent += 1
            self._interrupt()
            out.indent -= 1
        else:
            item = out.fresh("o")
            out.line(f"for {item} in {items}:")
            out.indent += 1
            if field.struct is not None:
                self._struct(item, field.struct)
            else:
                self._string(item, field, False)
            self._flush()
            self._interrupt()
            out.indent -= 1
        out.indent -= 1


def generate_encoder(
    message: MessageDef, version: int, message_class: type[Any], *, in_slices: bool = False
) -> Callable[..., Any]:
    """Compile the encoder of `message` at `version`: `encode(o) -> bytes`, or a generator of bytes with `in_slices`."""
    source = EncoderSource(message, version, in_slices=in_slices)
    namespace: dict[str, Any] = {
        message.name: message_class,
        "join": b"".join,
        "pack": struct.pack,
        "ONE_BYTE": runtime.UVARINT_BYTES,
        "ZERO_UUID": ZERO_UUID,
        "uvarint": runtime.uvarint,
        "string_prefix": runtime.string_prefix,
        "error_text": runtime.error_text,
        "fail_null": runtime.fail_null,
        "fail_uuid": runtime.fail_uuid,
        "fail_unsupported": runtime.fail_unsupported,
        **source.namespace,
    }
    exec(compile(source.text(), f"<encoder of {message.name} v{version}>", "exec"), namespace)
    encoder: Callable[..., Any] = namespace["encode"]
    return encoder
