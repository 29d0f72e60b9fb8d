"""Python source of decoders: straight-line code for one version of one message.

The function is `decode(b, p) -> (message, position)` over bytes `b`. Neighbouring fixed-width fields, together with the
first byte of the length, count or tag section that follows them, are read by one `struct` call.

A decoder in slices is a generator of the same shape, for large messages: it yields after every so many elements,
returns the same, and takes any buffer.
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


class DecoderSource:
    """Writes the decoder of `message` at `version`; `text()` and `namespace` are what `exec` takes."""

    def __init__(self, message: MessageDef, version: int, *, in_slices: bool = False) -> None:
        self._message = message
        self._in_slices = in_slices
        self._version = version
        self._flexible = message.is_flexible(version)
        self._out = SourceWriter()
        self._structs = StructNames("unpack_from")
        self._run: list[tuple[str, str]] = []
        self._minimum_cache: dict[str, int] = {}
        self._write()

    def text(self) -> str:
        return self._out.text()

    @property
    def namespace(self) -> dict[str, object]:
        return self._structs.namespace

    def _write(self) -> None:
        out = self._out
        out.line("def decode(b, p):")
        out.indent += 1
        out.line("z = len(b)")
        if self._in_slices:
            out.line(f"k = {SLICE_COUNT}")
        self._struct("o", self._message.body, f"{self._message.name}")
        self._flush()
        out.line("return o, p")
        if self._in_slices:
            out.line("yield")

    def _account(self, work: str) -> None:
        """In slices: so much was done, in elements; it is looked at after the next element."""
        if self._in_slices:
            self._out.line(f"k -= {work}")

    def _interrupt(self) -> None:
        if self._in_slices:
            self._out.line("k -= 1")
            self._out.line("if k < 0:")
            self._out.line(f"    k = {SLICE_COUNT}")
            self._out.line("    yield")

    # A run of fixed-width values: gathered by _add, read by _flush.

    def _add(self, form: str, target: str) -> None:
        self._run.append((form, target))

    def _flush(self) -> None:
        if not self._run:
            return
        form = "".join(part for part, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        if form == "B":
            self._out.line(f"{targets} = b[p]")
        else:
            comma = "," if len(self._run) == 1 else ""
            self._out.line(f"{targets}{comma} = {self._structs.name(form)}(b, p)")
        self._out.line(f"p += {struct.calcsize('>' + form)}")
        self._run.clear()

    def _struct(self, name: str, definition: StructDef, class_name: str) -> None:
        """Reads a struct into the new variable `name`; may leave a run behind."""
        out = self._out
        out.line(f"{name} = new({class_name})")
        tagged = []
        for field in definition.fields:
            target = f"{name}.{field.attribute}"
            is_present = self._version in field.versions
            if is_present and self._flexible and self._version in field.tagged:
                tagged.append(field)
                out.line(f"{target} = {default_source(field, self._message.name)}")
            elif not is_present:
                out.line(f"{target} = {default_source(field, self._message.name)}")
            else:
                self._field(target, field)
        if self._flexible:
            self._tags(name, tagged)

    def _tags(self, name: str, tagged: list[FieldDef]) -> None:
        out = self._out
        count = out.fresh("n")
        self._add("B", count)
        self._flush()
        out.line(f"if {count}:")
        out.indent += 1
        if not tagged:
            if self._in_slices:
                out.line("q = p")
            out.line(f"p = skip_tagged_fields(b, p, {count})")
            self._account("(p - q) // 8")
        else:
            self._known_tags(name, tagged, count)
        out.indent -= 1

    def _known_tags(self, name: str, tagged: list[FieldDef], count: str) -> None:
        out = self._out
        tag, size, end = out.fresh("t"), out.fresh("s"), out.fresh("e")
        out.line(f"if {count} > 127: {count}, p = read_tag_count(b, p, {count})")
        out.line(f"for _ in range({count}):")
        out.indent += 1
        out.line(f"{tag}, {size}, p = read_tag(b, p)")
        out.line(f"{end} = p + {size}")
        for index, field in enumerate(tagged):
            out.line(f"{'el' if index else ''}if {tag} == {field.tag}:")
            out.indent += 1
            self._field(f"{name}.{field.attribute}", field, tagged=True)
            self._flush()
            out.line(f"if p != {end}: fail_tag_size({field.name!r})")
            out.indent -= 1
        out.line("else:")
        out.line(f"    p = {end}")
        self._account("1")
        out.indent -= 1

    def _field(self, target: str, field: FieldDef, *, tagged: bool = False) -> None:
        if field.is_array:
            self._array(target, field)
        elif field.struct is not None:
            self._nested(target, field, field.struct, tagged)
        elif field.type in FIXED_FORMATS:
            self._add(FIXED_FORMATS[field.type], target)
        else:
            self._variable(target, field, self._version in field.nullable)

    def _nested(self, target: str, field: FieldDef, definition: StructDef, tagged: bool) -> None:
        """A struct. A nullable one begins with an int8, negative for null; a tagged one with a varint, 0 for null."""
        out = self._out
        name = out.fresh("o")
        class_name = f"{self._message.name}.{definition.name}"
        if self._version not in field.nullable:
            self._struct(name, definition, class_name)
            out.line(f"{target} = {name}")
            return
        mark = out.fresh("n")
        self._add("B" if tagged else "b", mark)
        self._flush()
        out.line(f"if {mark} {'==' if tagged else '<'} 0:")
        out.line(f"    {target} = None")
        out.line("else:")
        out.indent += 1
        self._struct(name, definition, class_name)
        self._flush()
        out.line(f"{target} = {name}")
        out.indent -= 1

    def _length(self, field: FieldDef, plain_form: str) -> tuple[str, bool]:
        """Reads a length or count; (variable, whether it is compact). A compact one holds the length plus one."""
        length = self._out.fresh("n")
        compact = is_compact(self._message, field, self._version)
        self._add("B" if compact else plain_form, length)
        self._flush()
        return length, compact

    def _null_branch(self, target: str, field: FieldDef, length: str, compact: bool, nullable: bool) -> None:
        """The branch taken on null, or on a length that is none."""
        out = self._out
        if not nullable:
            out.line("else:")
            out.line(f"    fail_null({field.name!r})")
            return
        if compact:
            out.line("else:")
            out.line(f"    {target} = None")
            return
        out.line(f"elif {length} == -1:")
        out.line(f"    {target} = None")
        out.line("else:")
        out.line(f"    fail_null({field.name!r})")

    def _variable(self, target: str, field: FieldDef, nullable: bool) -> None:
        """A string, bytes or records."""
        out = self._out
        is_string = field.type == "string"
        length, compact = self._length(field, "h" if is_string else "i")
        end = out.fresh("e")
        if compact:
            reader = (
                f"read_string_length(b, p, {length}, {field.name!r})" if is_string else f"read_uvarint(b, p, {length})"
            )
            out.line(f"if {length} > 127: {length}, p = {reader}")
        out.line(f"if {length} > {1 if compact else 0}:")
        out.line(f"    {end} = p + {length}{' - 1' if compact else ''}")
        out.line(f"    if {end} > z: fail_short({field.name!r})")
        if self._in_slices and is_string:
            out.line(f'    {target} = str(b[p:{end}], "utf-8")')
            out.line(f"    k -= {length} >> 12")
        elif self._in_slices:
            out.line(f"    if {length} > {runtime.LONG_BYTES}: {target} = yield from copy_slices(b, p, {end})")
            out.line(f"    else: {target} = bytes(b[p:{end}])")
            out.line(f"    k -= {length} >> 12")
        else:
            out.line(f"    {target} = b[p:{end}]{'.decode()' if is_string else ''}")
        out.line(f"    p = {end}")
        out.line(f"elif {length} == {1 if compact else 0}:")
        out.line(f"    {target} = {chr(39) * 2 if is_string else 'b' + chr(39) * 2}")
        self._null_branch(target, field, length, compact, nullable)

    def _array(self, target: str, field: FieldDef) -> None:
        out = self._out
        count, compact = self._length(field, "i")
        if compact:
            out.line(f"if {count} > 127: {count}, p = read_uvarint(b, p, {count})")
        out.line(f"if {count} > {0 if compact else -1}:")
        out.indent += 1
        if compact:
            out.line(f"{count} -= 1")
        out.line(f"if {count} > {runtime.MAX_ARRAY_COUNT}: fail_count({field.name!r}, {count})")
        minimum = self._minimum_bytes(field)
        out.line(f"if {count}{f' * {minimum}' if minimum > 1 else ''} > z - p: fail_short({field.name!r})")
        self._elements(target, field, count)
        out.indent -= 1
        self._null_branch(target, field, count, compact, self._version in field.nullable)

    def _elements(self, target: str, field: FieldDef, count: str) -> None:
        out = self._out
        if field.type == "uuid":
            whole = f"[b[i:i + 16] for i in range(p, p + {count} * 16, 16)]"
            out.line(f"{target} = {f'yield from uuid_slices(b, p, {count})' if self._in_slices else whole}")
            out.line(f"p += {count} * 16")
            return
        if field.type in FIXED_FORMATS:
            form = FIXED_FORMATS[field.type]
            small = f"{self._structs.sized_name('', form)}[{count}](b, p)"
            width = struct.calcsize(">" + form)
            large = f"unpack_array({form!r}, {width}, b, p, {count})"
            if self._in_slices:
                large = f"(yield from unpack_array_slices({form!r}, {width}, b, p, {count}))"
            out.line(f"{target} = (list({small}) if {count} < {SMALL_ARRAY_COUNT} else {large}) if {count} else []")
            out.line(f"p += {count} * {width}")
            return
        items, append, item = out.fresh("l"), out.fresh("a"), out.fresh("o")
        out.line(f"{target} = {items} = []")
        out.line(f"{append} = {items}.append")
        out.line(f"for _ in range({count}):")
        out.indent += 1
        if field.struct is not None:
            self._struct(item, field.struct, f"{self._message.name}.{field.struct.name}")
        else:
            self._variable(item, field, False)
        self._flush()
        out.line(f"{append}({item})")
        self._interrupt()
        out.indent -= 1

    def _minimum_bytes(self, field: FieldDef) -> int:
        """The fewest bytes one element of an array can take, at least 1, so a count is bounded by what is there."""
        if field.struct is not None:
            return max(1, self._minimum_struct_bytes(field.struct))
        if field.type in FIXED_FORMATS:
            return struct.calcsize(">" + FIXED_FORMATS[field.type])
        return self._prefix_bytes(field, field.type == "string")

    def _prefix_bytes(self, field: FieldDef, is_string: bool) -> int:
        """Bytes of the shortest length or count: of a string, or of anything else."""
        if is_compact(self._message, field, self._version):
            return 1
        return 2 if is_string else 4

    def _minimum_struct_bytes(self, definition: StructDef) -> int:
        if definition.name not in self._minimum_cache:
            total = 1 if self._flexible else 0
            for field in definition.fields:
                if self._version not in field.versions or self._version in field.tagged:
                    continue
                if field.is_array or field.type in ("string", "bytes", "records"):
                    total += self._prefix_bytes(field, field.type == "string" and not field.is_array)
                elif field.struct is None:
                    total += struct.calcsize(">" + FIXED_FORMATS[field.type])
                else:
                    is_nullable = self._version in field.nullable
                    total += 1 if is_nullable else self._minimum_struct_bytes(field.struct)
            self._minimum_cache[definition.name] = total
        return self._minimum_cache[definition.name]


def generate_decoder(
    message: MessageDef, version: int, message_class: type[Any], *, in_slices: bool = False
) -> Callable[..., Any]:
    """The compiled decoder of one version."""
    source = DecoderSource(message, version, in_slices=in_slices)
    namespace: dict[str, Any] = {
        message.name: message_class,
        "new": object.__new__,
        "unpack_from": struct.unpack_from,
        "ZERO_UUID": ZERO_UUID,
        "read_uvarint": runtime.read_uvarint,
        "read_string_length": runtime.read_string_length,
        "read_tag": runtime.read_tag,
        "read_tag_count": runtime.read_tag_count,
        "unpack_array": runtime.unpack_array,
        "unpack_array_slices": runtime.unpack_array_slices,
        "uuid_slices": runtime.uuid_slices,
        "copy_slices": runtime.copy_slices,
        "fail_count": runtime.fail_count,
        "skip_tagged_fields": runtime.skip_tagged_fields,
        "fail_short": runtime.fail_short,
        "fail_null": runtime.fail_null,
        "fail_tag_size": runtime.fail_tag_size,
        **source.namespace,
    }
    exec(compile(source.text(), f"<decoder of {message.name} v{version}>", "exec"), namespace)
    decoder: Callable[..., Any] = namespace["decode"]
    return decoder
