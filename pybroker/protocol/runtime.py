"""The base of generated message code: base classes, varints and tagged fields.

Generated functions read with plain indexing and `struct`, so a short buffer shows up as IndexError or struct.error.
`Message` turns these into `ProtocolError`. No other exception leaves this package for malformed input or a value that
cannot be written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, ClassVar, NoReturn, Self

from pybroker.protocol.errors import ProtocolError

UVARINT_BYTES = tuple(bytes((n,)) for n in range(128))
MAX_STRING_BYTES = 0x7FFF
# The limits of Apache Kafka 4.4: more than that is malformed, whatever the message's size.
LONG_BYTES = 256 << 10
"""What is longer is copied in slices."""
MAX_ARRAY_COUNT = 1_000_000
MAX_TAGGED_FIELD_COUNT = 10_000
# So many elements at most are allocated ahead of what was parsed.
AHEAD_COUNT = 1_000

Encoder = Callable[[Any], bytes]
Decoder = Callable[[bytes, int], tuple[Any, int]]


def uvarint(value: int) -> bytes:
    """An unsigned varint (KIP-482) of 0 <= value < 2**32."""
    if value < 128:
        return UVARINT_BYTES[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: bytes, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned 32-bit varint whose first byte, already read, was `first`: (value, next position)."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolError("a varint is longer than 32 bits")


def skip_tagged_fields(buffer: bytes, position: int, count: int) -> int:
    """Position after tagged fields that this side does not know (KIP-482). `count` is the section's first byte."""
    if count > 127:
        count, position = read_tag_count(buffer, position, count)
    for _ in range(count):
        _, size, position = read_tag(buffer, position)
        position += size
    return position


def read_tag_count(buffer: bytes, position: int, first: int) -> tuple[int, int]:
    """How many tagged fields follow, where the number has several bytes: (count, next position)."""
    count, position = read_uvarint(buffer, position, first)
    if count > MAX_TAGGED_FIELD_COUNT:
        raise ProtocolError(f"{count} tagged fields in one section; at most {MAX_TAGGED_FIELD_COUNT} are allowed")
    return count, position


def unpack_array(form: str, size_bytes: int, buffer: bytes, position: int, count: int) -> list[Any]:
    """`count` fixed-width values of `size_bytes` each, unpacked `AHEAD_COUNT` at a time."""
    values: list[Any] = []
    while count > 0:
        taken = min(count, AHEAD_COUNT)
        values += struct.unpack_from(f">{taken}{form}", buffer, position)
        position += taken * size_bytes
        count -= taken
    return values


def unpack_array_slices(
    form: str, size_bytes: int, buffer: bytes, position: int, count: int
) -> Generator[None, None, list[Any]]:
    """As `unpack_array`, and may be interrupted."""
    values: list[Any] = []
    for start in range(0, count, AHEAD_COUNT):
        taken = min(count - start, AHEAD_COUNT)
        values += struct.unpack_from(f">{taken}{form}", buffer, position + start * size_bytes)
        yield
    return values


def uuid_slices(buffer: bytes, position: int, count: int) -> Generator[None, None, list[bytes]]:
    """`count` uuids; may be interrupted."""
    values: list[bytes] = []
    for start in range(position, position + count * 16, AHEAD_COUNT * 16):
        end = min(position + count * 16, start + AHEAD_COUNT * 16)
        values += [bytes(buffer[place : place + 16]) for place in range(start, end, 16)]
        yield
    return values


def copy_slices(buffer: bytes | bytearray | memoryview, start: int, end: int) -> Generator[None, None, bytes]:
    """`buffer[start:end]`, where that is long; may be interrupted."""
    from pybroker import native

    copy = bytes(end - start)
    for position in range(0, end - start, LONG_BYTES):
        # Nobody else has seen it yet. To join pieces would be a copy in one step.
        native.fill(copy, position, memoryview(buffer)[start + position : min(start + position + LONG_BYTES, end)])
        yield
    return copy


def read_tag(buffer: bytes, position: int) -> tuple[int, int, int]:
    """Head of one tagged field: (tag, size in bytes, position of its value); the value lies within the buffer."""
    tag = buffer[position]
    position += 1
    if tag > 127:
        tag, position = read_uvarint(buffer, position, tag)
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = read_uvarint(buffer, position, size)
    if size > len(buffer) - position:
        raise ProtocolError(f"tagged field {tag} claims {size} bytes, {len(buffer) - position} are left")
    return tag, size, position


def string_prefix(length: int, field_name: str) -> bytes:
    """Compact length prefix of a string of 127 bytes or more."""
    if length > MAX_STRING_BYTES:
        raise ProtocolError(f"{field_name}: a string of {length} bytes; at most {MAX_STRING_BYTES} can be written")
    return uvarint(length + 1)


def error_text(text: str) -> bytes:
    """The bytes of an error text, cut at a character where they are more than a string can have. Names that are no
    UTF-8, as paths may be, are written with question marks."""
    return cut_utf8(text.encode(errors="replace"), MAX_STRING_BYTES)


def fitting(text: str) -> str:
    """A text as an answer can hold it: settings of the broker's file may be longer than a string can be, and paths may
    be no UTF-8."""
    if text.isascii() and len(text) <= MAX_STRING_BYTES:
        return text
    return error_text(text).decode()


def cut_utf8(data: bytes, most_bytes: int) -> bytes:
    """UTF-8 of at most so many bytes, cut at a character."""
    if len(data) <= most_bytes:
        return data
    end = most_bytes
    while data[end] & 0xC0 == 0x80:  # a character's second byte, or a later one
        end -= 1
    return data[:end]


def read_string_length(buffer: bytes, position: int, first: int, field_name: str) -> tuple[int, int]:
    """Length plus one of a compact string whose prefix has several bytes."""
    length, position = read_uvarint(buffer, position, first)
    if length > MAX_STRING_BYTES + 1:
        raise ProtocolError(f"{field_name}: a string of {length - 1} bytes; at most {MAX_STRING_BYTES} are allowed")
    return length, position


def fail_short(field_name: str) -> NoReturn:
    """A length or count goes beyond the end of the buffer."""
    raise ProtocolError(f"{field_name} goes beyond the end of the message")


def fail_count(field_name: str, count: int) -> NoReturn:
    """An array has more elements than any may have."""
    raise ProtocolError(f"{field_name}: an array of {count} elements; at most {MAX_ARRAY_COUNT} are allowed")


def fail_null(field_name: str) -> NoReturn:
    """A null, or another negative length, where the version does not allow it."""
    raise ProtocolError(f"{field_name} is null or has a negative length; this version does not allow it")


def fail_tag_size(field_name: str) -> NoReturn:
    """A known tagged field is not as long as it claims."""
    raise ProtocolError(f"{field_name}: its value is not as long as its tag says")


def fail_uuid(field_name: str) -> NoReturn:
    """A uuid that is not 16 bytes."""
    raise ProtocolError(f"{field_name}: a uuid is 16 bytes")


def fail_unsupported(field_name: str) -> NoReturn:
    """A value the receiver would need, at a version that has no place for it."""
    raise ProtocolError(f"{field_name} has a value, and this version has no such field")


class Struct:
    """A message or a struct nested in one: fields are its slots, in the order of the schema."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # fields are mutable, so a message is no dictionary key

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({values})"


def element_count(value: Struct, most: int) -> int:
    """Elements of a struct's arrays, and of those in them; it does not matter how many more than `most` there are."""
    count = 0
    for name in value.__slots__:
        items = getattr(value, name)
        if type(items) is not list:
            continue
        count += len(items)
        for item in items:
            if count > most:
                return count
            if not isinstance(item, Struct):
                break
            count += element_count(item, most - count)
    return count


class CodecCache(dict[int, Callable[..., Any]]):
    """version -> generated function, made at its first use."""

    def __init__(self, generate: Callable[[int], Callable[..., Any]]) -> None:
        super().__init__()
        self._generate = generate

    def __missing__(self, version: int) -> Callable[..., Any]:
        made = self[version] = self._generate(version)
        return made


class Message(Struct):
    """A whole request, response, header or record body. `encode` and `decode` deal with the body alone."""

    __slots__ = ()

    API_KEY: ClassVar[int | None]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_MIN_VERSION: ClassVar[int | None]
    LATEST_VERSION_UNSTABLE: ClassVar[bool]
    _encoders: ClassVar[CodecCache]
    _decoders: ClassVar[CodecCache]
    _encoders_in_slices: ClassVar[CodecCache]
    _decoders_in_slices: ClassVar[CodecCache]

    def encode(self, version: int) -> bytes:
        """The body's bytes. ProtocolError when the version is unknown or cannot hold the values."""
        encoder: Encoder = self._encoders[version]
        try:
            return encoder(self)
        except (AttributeError, TypeError, ValueError, struct.error) as error:
            raise ProtocolError(f"{type(self).__name__} v{version} cannot be encoded: {error}") from error

    @classmethod
    def decode(cls, version: int, buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[Self, int]:
        """(message, position after it). Bytes behind it in the buffer are left alone.

        ProtocolError when the version is unknown or the bytes are malformed: cut short, a negative length or an absurd
        count, bad UTF-8.
        """
        start = 0
        if type(buffer) is not bytes:
            buffer, start, position = bytes(memoryview(buffer)[position:]), position, 0
        decoder: Decoder = cls._decoders[version]
        try:
            message, end = decoder(buffer, position)
        except (IndexError, UnicodeDecodeError, struct.error) as error:
            raise ProtocolError(f"{cls.__name__} v{version} is malformed: {error}") from error
        return message, start + end

    def encode_in_slices(self, version: int) -> Generator[bytes, None, None]:
        """The body's bytes piece by piece; ProtocolError as `encode`, maybe after some. For large messages: a piece
        takes a fraction of a millisecond."""
        encoder = self._encoders_in_slices[version]
        try:
            yield from encoder(self)
        except (AttributeError, TypeError, ValueError, struct.error) as error:
            raise ProtocolError(f"{type(self).__name__} v{version} cannot be encoded: {error}") from error

    @classmethod
    def decode_in_slices(
        cls, version: int, buffer: bytes | bytearray | memoryview, position: int = 0
    ) -> Generator[None, None, tuple[Self, int]]:
        """As `decode`, for large messages: a generator that yields after each fraction of a millisecond. The buffer is
        not copied."""
        decoder = cls._decoders_in_slices[version]
        try:
            result: tuple[Self, int] = yield from decoder(buffer, position)
        except (IndexError, UnicodeDecodeError, struct.error) as error:
            raise ProtocolError(f"{cls.__name__} v{version} is malformed: {error}") from error
        return result
