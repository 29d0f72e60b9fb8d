r"""Reads and writes Java `.properties` text, the format of `server.properties`.

Reading runs once at start on the main thread and keeps nothing. The grammar is the one that `java.util.Properties.load`
documents. `#` and `!` begin comments. `=`, `:` or white space stands between key and value. A backslash at the end of a
line continues it. The escapes are `\t \n \r \f \uXXXX`. Bytes are ISO 8859-1, as Java reads them. A file that begins
with a byte order mark is what the mark says instead, since editors put it there for UTF-8 and UTF-16. Failures: an
unfinished `\uXXXX` escape, and bytes that contradict their byte order mark.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pybroker.config.definition import ConfigError
from pybroker.values import Value

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\\": r"\\", **{char: f"\\{letter}" for letter, char in _ESCAPES.items()}}
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LINE_END = re.compile(r"\r\n|\r|\n")


class Property(Value):
    """One key with its value, and the number (from 1) of the line on which the key stands."""

    key: str
    value: str
    line: int


def read_properties(path: Path) -> list[Property]:
    """The properties of the file at `path`, in order, repeated keys included.

    Raises ConfigError if the file cannot be read or breaks the promise of its byte order mark.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            f"cannot be read ({reason}); give the path of a server.properties file", where=str(path)
        ) from None
    return parse_properties(_decode(data, str(path)), str(path))


def _decode(data: bytes, where: str) -> str:
    mark, encoding = next((each for each in _BYTE_ORDER_MARKS if data.startswith(each[0])), (b"", "iso-8859-1"))
    try:
        return data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"byte {len(mark) + error.start} is not {encoding.upper()}, "
            "which the byte order mark at the begin promises; save the file as UTF-8",
            where=where,
        ) from None


def looks_like_utf8(value: str) -> bool:
    """Whether a value that was read as ISO 8859-1 seems to have been written as UTF-8."""
    try:
        return not value.isascii() and bool(value.encode("iso-8859-1").decode("utf-8"))
    except UnicodeError:
        return False


def parse_properties(text: str, source: str) -> list[Property]:
    """The properties in `text`; `source` is the name that errors carry. Raises ConfigError on a malformed escape."""
    found = []
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        where = f"{source}:{number}"
        found.append(Property(_unescape(line[:key_end], where), _unescape(line[value_start:], where), number))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Natural lines joined over continuations, without blank lines, comments and leading blanks.

    While nothing is joined yet, even behind a lone backslash, a line may still be blank or a comment.
    """
    joined, first = "", 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        if _ends_open(line):
            joined += line[:-1]
            continue
        yield first, joined + line
        joined = ""
    if joined:
        yield first, joined


def _ends_open(line: str) -> bool:
    """Whether the line ends with an odd number of backslashes, so that the next one continues it."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and the value starts. The first unescaped separator ends the key."""
    end = 0
    while end < len(line) and line[end] not in _BLANKS + "=:":
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = end
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
        while start < len(line) and line[start] in _BLANKS:
            start += 1
    return end, start


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out, position = [], 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
            continue
        char = text[position : position + 1]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise ConfigError(f"\\u{digits} is not a character; write \\u and four hexadecimal digits", where=where)
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Java strings are UTF-16: two \u escapes may be the halves of one character.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def format_properties(properties: Mapping[str, str]) -> str:
    """The text that these are read from. In ASCII: Java takes every other byte for a character of ISO 8859-1."""
    return "".join(f"{_escape(key, ' =:#!')}={_escape_value(value)}\n" for key, value in properties.items())


def _escape_value(value: str) -> str:
    text = _escape(value)
    return f"\\{text}" if text.startswith(" ") else text


def _escape(text: str, special: str = "") -> str:
    out = []
    for char in text:
        if char in _ESCAPED:
            out.append(_ESCAPED[char])
        elif char in special:
            out.append(f"\\{char}")
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass").hex()
            out += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
    return "".join(out)
