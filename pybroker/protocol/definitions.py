"""The table of protocol facts: its model and the text format it is kept in.

Files `schema/<namespace>.schema` hold one block per message, separated by empty lines:

    request MetadataRequest key=3 versions=0-13 flexible=9+ listeners=broker
      Topics []MetadataRequestTopic 0+ nullable=1+
        TopicId uuid 10+ ignorable
      struct Shared 0+
        Id int32 0+ default=-1

Two spaces indent a field below its struct; `struct` opens a struct that several fields of the message share. Attributes
of a field: `nullable=VERSIONS`, `tag=NUMBER@VERSIONS`, `default=VALUE`, `flexible=none`, `ignorable`, `key` (of a map).
VERSIONS is `3`, `0-3`, `2+` or `none`. A block is parsed when it is first asked for. Nothing is used that has to be
installed, because a build of the C sources reads these files before anything is. A malformed line raises `SchemaError`
with file and line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pybroker.values import Value

SCHEMA_DIR = Path(__file__).parent / "schema"
OPEN_END = 32767

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
VARIABLE_TYPES = ("string", "bytes", "records")

NAMESPACES = ("requests", "responses", "data", "metadata", "group", "transaction", "share", "storage", "raft")


class SchemaError(Exception):
    """A schema file or a definition breaks the rules of its format."""


class Versions(Value):
    """An inclusive range of versions; `highest` is OPEN_END when the range has no upper end."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __bool__(self) -> bool:
        return self.lowest <= self.highest

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.highest == OPEN_END:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = Versions(0, -1)


@functools.cache
def parse_versions(text: str) -> Versions:
    """`3`, `0-3`, `2+` or `none`; SchemaError for anything else."""
    match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
    if text == "none":
        return NO_VERSIONS
    if match is None:
        raise SchemaError(f"{text!r} is not a version range")
    lowest = int(match[1])
    return Versions(lowest, OPEN_END if match[2] else int(match[3] or lowest))


@functools.cache
def snake_case(name: str) -> str:
    """Kafka's CamelCase field or message name as snake_case (KRaft counts as one word)."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name.replace("KRaft", "Kraft"))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


@dataclass(slots=True)
class StructDef:
    """A named group of fields: a message's body, or a struct nested in it."""

    name: str
    versions: Versions
    fields: list[FieldDef] = field(default_factory=list)


@dataclass(slots=True)
class FieldDef:
    """One field. `type` is an element's type when `is_array`; `struct` is set when that type is a struct."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions = NO_VERSIONS
    tag: int = -1
    tagged: Versions = NO_VERSIONS
    default: str | None = None
    ignorable: bool = False
    map_key: bool = False
    never_flexible: bool = False
    struct: StructDef | None = None
    attribute: str = ""

    def __post_init__(self) -> None:
        self.attribute = snake_case(self.name)

    @property
    def may_be_null(self) -> bool:
        """Whether None is a legal value at some version."""
        return bool(self.nullable)

    @property
    def default_is_null(self) -> bool:
        return self.default == "null"

    def int_default(self) -> int:
        """The default of an integer field."""
        return int(self.default or "0", 0)


@dataclass(slots=True)
class MessageDef:
    """One message of a namespace. `kind` is Kafka's: request, response, header, data, metadata, coordinator-key,
    coordinator-value.
    """

    kind: str
    namespace: str
    body: StructDef
    versions: Versions
    flexible: Versions
    api_key: int | None = None
    listeners: tuple[str, ...] = ()
    latest_unstable: bool = False
    structs: dict[str, StructDef] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.body.name

    def is_flexible(self, version: int) -> bool:
        return version in self.flexible


def _parse_field(words: list[str]) -> FieldDef:
    name, type_name, versions = words[:3]
    is_array = type_name.startswith("[]")
    parsed = FieldDef(name, type_name.removeprefix("[]"), is_array, parse_versions(versions))
    for word in words[3:]:
        attribute, _, value = word.partition("=")
        if attribute == "nullable":
            parsed.nullable = parse_versions(value)
        elif attribute == "tag":
            number, _, tagged = value.partition("@")
            parsed.tag, parsed.tagged = int(number), parse_versions(tagged)
        elif attribute == "default":
            parsed.default = value
        elif word == "ignorable":
            parsed.ignorable = True
        elif word == "key":
            parsed.map_key = True
        elif word == "flexible=none":
            parsed.never_flexible = True
        else:
            raise SchemaError(f"unknown attribute {word!r}")
    return parsed


def _parse_head(words: list[str], namespace: str) -> MessageDef:
    attributes = dict(word.partition("=")[::2] for word in words[2:])
    versions = parse_versions(attributes["versions"])
    return MessageDef(
        kind=words[0],
        namespace=namespace,
        body=StructDef(words[1], versions),
        versions=versions,
        flexible=parse_versions(attributes["flexible"]),
        api_key=int(attributes["key"]) if "key" in attributes else None,
        listeners=tuple(attributes["listeners"].split(",")) if "listeners" in attributes else (),
        latest_unstable="latest-unstable" in attributes,
    )


def parse_message(block: str, namespace: str) -> MessageDef:
    """One block of a schema file as a MessageDef with every struct reference resolved."""
    lines = block.strip("\n").split("\n")
    message = _parse_head(lines[0].split(), namespace)
    open_structs = [message.body]
    last: FieldDef | None = None
    fields: list[FieldDef] = []
    for line in lines[1:]:
        depth = (len(line) - len(line.lstrip(" "))) // 2
        words = line.split()
        if depth < 1 or depth > len(open_structs) + 1 or len(words) < 3:
            raise SchemaError(f"{namespace}: {message.name}: bad line {line!r}")
        if depth == len(open_structs) + 1:
            if last is None:
                raise SchemaError(f"{namespace}: {message.name}: bad indent {line!r}")
            message.structs[last.type] = StructDef(last.type, last.versions)
            open_structs.append(message.structs[last.type])
        del open_structs[depth:]
        if words[0] == "struct":
            message.structs[words[1]] = StructDef(words[1], parse_versions(words[2]))
            open_structs.append(message.structs[words[1]])
            last = None
            continue
        last = _parse_field(words)
        open_structs[-1].fields.append(last)
        fields.append(last)
    for item in fields:
        if item.type not in FIXED_FORMATS and item.type not in VARIABLE_TYPES:
            if item.type not in message.structs:
                raise SchemaError(f"{namespace}: {message.name}.{item.name}: unknown type {item.type}")
            item.struct = message.structs[item.type]
    return message


@functools.cache
def _blocks() -> dict[str, tuple[str, str]]:
    """Message name -> (namespace, text of its block), over all schema files."""
    found: dict[str, tuple[str, str]] = {}
    for namespace in NAMESPACES:
        text = (SCHEMA_DIR / f"{namespace}.schema").read_text(encoding="utf-8")
        for block in text.split("\n\n"):
            if not block.strip() or block.startswith("#"):
                continue
            found[block.split(maxsplit=2)[1]] = (namespace, block)
    return found


@functools.cache
def message(name: str) -> MessageDef:
    """The definition of one message; KeyError when there is none of that name."""
    namespace, block = _blocks()[name]
    return parse_message(block, namespace)


def names() -> list[str]:
    """Names of all messages, in the order of the files."""
    return list(_blocks())


@functools.cache
def heads() -> tuple[MessageDef, ...]:
    """Every message's first line, without fields: cheap, for tables by key."""
    return tuple(_parse_head(block.split("\n", 1)[0].split(), namespace) for namespace, block in _blocks().values())


def all_messages() -> Iterator[MessageDef]:
    """Every message, parsed whole."""
    return (message(name) for name in names())
