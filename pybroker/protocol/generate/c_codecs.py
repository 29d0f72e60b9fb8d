"""C codecs of one message: a header with plain structs, a source with init, read and write for all its versions."""

from __future__ import annotations

from pybroker.protocol.definitions import FIXED_FORMATS, FieldDef, MessageDef, StructDef, snake_case
from pybroker.protocol.generate.c_model import CMessage, c_default
from pybroker.protocol.source import SourceWriter

NOTE = "Written by pybroker.protocol.generate; not edited by hand."

_READ_CONTRACT = (
    "/*",
    " * Read a body; the version is a valid one. 0, -EBADMSG (malformed) or -ENOMEM (arena limit). Slices point into",
    " * the frame, arrays into the arena. What follows the body is left in the reader.",
    " */",
)
_WRITE_CONTRACT = (
    "/*",
    " * Write a body; the version is a valid one. 0, what stuck in the writer, or UNSUPPORTED_VERSION when a field",
    " * that the receiver needs has a value and the version lacks it.",
    " */",
)


class CSource(SourceWriter):
    """Lines of C with braces that follow the indent."""

    def open(self, head: str) -> None:
        self.line(f"{head} {{".lstrip())
        self.indent += 1

    def close(self) -> None:
        self.indent -= 1
        self.line("}")

    def open_if(self, condition: str | None) -> bool:
        """Opens a block under a condition; None opens none."""
        if condition is not None:
            self.open(f"if ({condition})")
        return condition is not None


def header_source(definition: MessageDef) -> str:
    """Text of `<message>.h`."""
    model = CMessage(definition)
    out = CSource()
    guard = f"PB_WIRE_GENERATED_{model.stem.upper()}_H"
    versions = definition.versions
    out.line(f"/* {definition.name}, versions {versions}, flexible {definition.flexible}. {NOTE} */")
    for line in (
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        '#include "wire/reader.h"',
        '#include "wire/writer.h"',
        "",
    ):
        out.line(line)
    out.line(f"#define PB_{model.stem.upper()}_MIN_VERSION {versions.lowest}")
    out.line(f"#define PB_{model.stem.upper()}_MAX_VERSION {versions.highest}")
    for struct in model.structs():
        _declare(out, model, struct)
    body = f"pb_{model.stem}"
    out.line("")
    out.line("/* Set Kafka's defaults: a field that nobody sets is written, or left out, as Kafka does. */")
    for struct in model.structs():
        out.line(f"void {model.type_name(struct)}_init({model.type_name(struct)} *out);")
    out.line("")
    for line in _READ_CONTRACT:
        out.line(line)
    out.line(f"int {body}_read(pb_reader *reader, int16_t version, pb_arena *arena, {body} *out);")
    out.line("")
    for line in _WRITE_CONTRACT:
        out.line(line)
    out.line(f"int {body}_write(pb_writer *writer, int16_t version, const {body} *in);")
    out.line("")
    out.line("#endif")
    return out.text()


def _declare(out: CSource, model: CMessage, struct: StructDef) -> None:
    name = model.type_name(struct)
    out.line("")
    out.line(f"typedef struct {name} {{")
    out.indent += 1
    for field in struct.fields:
        notes = [] if model.condition(field.versions) is None else [f"versions {field.versions}"]
        if field.tag >= 0:
            notes.append(f"tag {field.tag}")
        if field.is_array:
            out.line(f"{model.element_type(field)} *{field.attribute};")
            if field.may_be_null:
                notes.append("-1 is null")
            member = f"int32_t {field.attribute}_count;"
        else:
            if field.may_be_null:
                notes.append("may be null")
            member = f"{model.element_type(field)} {field.attribute};"
        out.line(member + (f" /* {', '.join(notes)} */" if notes else ""))
    out.indent -= 1
    out.line(f"}} {name};")


def code_source(definition: MessageDef) -> str:
    """Text of `<message>.c`."""
    model = CMessage(definition)
    out = CSource()
    out.line(f"/* Codec of {definition.name}. {NOTE} */")
    out.line(f'#include "wire/generated/{model.stem}.h"')
    out.line("")
    out.line('#include "wire/generated/kafka_errors.h"')
    compared = {
        field.struct.name
        for struct in model.structs()
        for field in struct.fields
        if field.struct is not None and not field.is_array
    }
    for struct in model.structs():
        _init(out, model, struct)
        if struct.name in compared:
            _is_default(out, model, struct)
        _ReadSource(out, model, struct).write()
        _WriteSource(out, model, struct).write()
    return out.text()


def _flexible_line(model: CMessage) -> str:
    return f"const bool flexible = {model.condition_text(model.definition.flexible)};"


def _init(out: CSource, model: CMessage, struct: StructDef) -> None:
    name = model.type_name(struct)
    out.line("")
    out.line(f"void {name}_init({name} *out)")
    out.open("")
    out.line("memset(out, 0, sizeof(*out));")
    for field in struct.fields:
        if field.is_array:
            if field.default_is_null:
                out.line(f"out->{field.attribute}_count = -1;")
        elif field.struct is not None:
            out.line(f"{model.type_name(field.struct)}_init(&out->{field.attribute});")
        elif c_default(field) not in ("0", "false", "0.0", "PB_EMPTY_SLICE", "(pb_uuid){{0}}"):
            out.line(f"out->{field.attribute} = {c_default(field)};")
    out.close()


def _is_default(out: CSource, model: CMessage, struct: StructDef) -> None:
    out.line("")
    out.line(f"static bool is_default_{snake_case(struct.name)}(const {model.type_name(struct)} *in)")
    out.open("")
    terms = [f"!({model.is_not_default(f'in->{field.attribute}', field)})" for field in struct.fields]
    out.line(f"return {' && '.join(terms)};")
    out.close()


class _ReadSource:
    """Writes the function that reads one struct."""

    def __init__(self, out: CSource, model: CMessage, struct: StructDef) -> None:
        self._out = out
        self._model = model
        self._struct = struct

    def write(self) -> None:
        out, model = self._out, self._model
        name = model.type_name(self._struct)
        storage = "" if self._struct is model.definition.body else "static "
        out.line("")
        out.line(f"{storage}int {name}_read(pb_reader *reader, int16_t version, pb_arena *arena, {name} *out)")
        out.open("")
        out.line(f"PB_ASSERT(version >= {model.definition.versions.lowest});")
        out.line(f"PB_ASSERT(version <= {model.definition.versions.highest});")
        out.line("(void)arena;")
        out.line(_flexible_line(model))
        out.line(f"{name}_init(out);")
        tagged = []
        for field in self._struct.fields:
            if field.tag >= 0:
                tagged.append(field)
                continue
            condition = model.condition(field.versions)
            if condition != "false":
                opened = out.open_if(condition)
                self._field(field)
                if opened:
                    out.close()
        self._tags(tagged)
        out.line("return reader->error;")
        out.close()

    def _tags(self, tagged: list[FieldDef]) -> None:
        out, model = self._out, self._model
        if not tagged:
            out.line("if (flexible)")
            out.line("    pb_read_skip_tags(reader);")
            return
        out.line("uint32_t tag_count = flexible ? pb_read_tag_count(reader) : 0;")
        out.open("for (; tag_count > 0 && reader->error == 0; tag_count--)")
        out.line("uint32_t tag;")
        out.line("const size_t end = pb_read_tag(reader, &tag);")
        for field in tagged:
            condition = model.condition(field.tagged)
            if condition == "false":
                continue
            out.open(f"if (tag == {field.tag}{'' if condition is None else ' && ' + condition})")
            self._field(field)
            out.line("pb_reader_expect(reader, end);")
            out.line("continue;")
            out.close()
        out.line("pb_reader_skip_to(reader, end);")
        out.close()

    def _field(self, field: FieldDef) -> None:
        out, model = self._out, self._model
        target = f"out->{field.attribute}"
        if field.is_array:
            self._array(target, field)
        elif field.struct is not None:
            out.line(f"if ({model.type_name(field.struct)}_read(reader, version, arena, &{target}) != 0)")
            out.line("    return reader->error;")
        elif field.type in FIXED_FORMATS:
            out.line(f"{target} = pb_read_{field.type}(reader);")
        else:
            out.line(f"{target} = {self._variable(field)};")

    def _variable(self, field: FieldDef) -> str:
        kind = "string" if field.type == "string" else "bytes"
        nullable = (
            "false" if field.is_array else self._model.condition_text(field.nullable) if field.nullable else "false"
        )
        return f"pb_read_{kind}(reader, {self._model.compact(field)}, {nullable})"

    def _array(self, target: str, field: FieldDef) -> None:
        out, model = self._out, self._model
        element = model.element_type(field)
        nullable = model.condition_text(field.nullable) if field.nullable else "false"
        out.open("")
        out.line("void *elements;")
        out.line(
            f"{target}_count = pb_read_array(reader, {model.compact(field)}, {nullable}, {model.least_bytes(field)}, "
            f"arena, sizeof({element}), &elements);"
        )
        out.line(f"{target} = elements;")
        # The inner loop is that of an array without limits: nearly all of them are short.
        out.line(f"const int32_t count = {target}_count;")
        out.line("int32_t i = 0, room = pb_array_first_room(count);")
        out.open("for (;;)")
        out.open("for (; i < room; i++)")
        if field.struct is not None:
            out.line(f"if ({element}_read(reader, version, arena, &{target}[i]) != 0)")
            out.line("    return reader->error;")
        elif field.type in FIXED_FORMATS:
            out.line(f"{target}[i] = pb_read_{field.type}(reader);")
        else:
            out.line(f"{target}[i] = {self._variable(field)};")
        out.close()
        out.line("if (i >= count)")
        out.line("    break;")
        out.line("room = pb_array_next_room(i, count);")
        out.line(f"{target} = pb_array_grow(reader, arena, {target}, i, room, sizeof({element}));")
        out.line(f"if ({target} == NULL)")
        out.line("    return reader->error;")
        out.close()
        out.close()


class _WriteSource:
    """Writes the function that writes one struct."""

    def __init__(self, out: CSource, model: CMessage, struct: StructDef) -> None:
        self._out = out
        self._model = model
        self._struct = struct

    def write(self) -> None:
        out, model = self._out, self._model
        name = model.type_name(self._struct)
        storage = "" if self._struct is model.definition.body else "static "
        out.line("")
        out.line(f"{storage}int {name}_write(pb_writer *writer, int16_t version, const {name} *in)")
        out.open("")
        out.line(f"PB_ASSERT(version >= {model.definition.versions.lowest});")
        out.line(f"PB_ASSERT(version <= {model.definition.versions.highest});")
        out.line(_flexible_line(model))
        for field in self._struct.fields:
            self._refuse_absent(field)
        tagged = []
        for field in self._struct.fields:
            condition = model.condition(field.versions)
            if field.tag >= 0:
                tagged.append(field)
            elif condition != "false":
                opened = out.open_if(condition)
                self._field(field)
                if opened:
                    out.close()
        self._tags(sorted(tagged, key=lambda item: item.tag))
        out.line("return writer->error;")
        out.close()

    def _refuse_absent(self, field: FieldDef) -> None:
        """A field that the version lacks and the receiver needs must hold its default."""
        condition = self._model.condition(field.versions)
        if field.ignorable or condition is None:
            return
        differs = self._model.is_not_default(f"in->{field.attribute}", field)
        self._out.line(f"if (!({condition}) && {differs})")
        self._out.line("    pb_writer_fail(writer, PB_KAFKA_UNSUPPORTED_VERSION);")

    def _tags(self, tagged: list[FieldDef]) -> None:
        out, model = self._out, self._model
        out.line("if (!flexible)")
        out.line("    return writer->error;")
        present = []
        for field in tagged:
            condition = model.condition(field.tagged)
            if condition == "false":
                continue
            differs = model.is_not_default(f"in->{field.attribute}", field)
            out.line(
                f"const bool has_{field.attribute} = {differs if condition is None else f'{condition} && {differs}'};"
            )
            present.append(field)
        total = " + ".join(f"(has_{field.attribute} ? 1u : 0u)" for field in present) or "0"
        out.line(f"pb_write_uvarint(writer, {total});")
        for field in present:
            out.open(f"if (has_{field.attribute})")
            out.line(f"pb_write_uvarint(writer, {field.tag});")
            out.line("const size_t mark = pb_writer_begin_sized(writer);")
            self._field(field)
            out.line("pb_writer_end_sized(writer, mark);")
            out.close()

    def _field(self, field: FieldDef) -> None:
        out, model = self._out, self._model
        source = f"in->{field.attribute}"
        if field.is_array:
            nullable = model.condition_text(field.nullable) if field.nullable else "false"
            out.line(f"pb_write_length(writer, {source}_count, {model.compact(field)}, {nullable});")
            out.open(f"for (int32_t i = 0; i < {source}_count; i++)")
            self._one(f"{source}[i]", field, "false")
            out.close()
        else:
            self._one(source, field, model.condition_text(field.nullable) if field.nullable else "false")

    def _one(self, source: str, field: FieldDef, nullable: str) -> None:
        out, model = self._out, self._model
        if field.struct is not None:
            out.line(f"{model.type_name(field.struct)}_write(writer, version, &{source});")
        elif field.type == "uuid":
            out.line(f"pb_write_uuid(writer, &{source});")
        elif field.type in FIXED_FORMATS:
            out.line(f"pb_write_{field.type}(writer, {source});")
        else:
            out.line(f"pb_write_{field.type}(writer, {source}, {model.compact(field)}, {nullable});")
