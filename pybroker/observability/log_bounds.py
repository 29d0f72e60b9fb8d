"""Bounds the length of what is logged, and escapes what would forge a line or drive a terminal.

Clients choose names, ids and reasons of up to 32 KiB each, and a line of the log repeats them. Pure functions; any
thread. Lengths are bytes of UTF-8.
"""

from __future__ import annotations

import copy
import logging
import traceback
from collections.abc import Mapping

VALUE_BYTES = 1024
"""The longest value within a line."""
LINE_BYTES = 8192
"""The longest line, without its traceback."""
TRACEBACK_BYTES = 16384
"""The longest traceback; its beginning and its end are kept."""

#: Controls but tab; separators of lines and paragraphs; what changes the direction of writing.
_FORGING = (*range(9), *range(10, 32), *range(127, 160), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: repr(chr(code))[1:-1] for code in _FORGING}
_ESCAPES_OF_JSON = {code: f"\\u{code:04x}" for code in _FORGING if code >= 127}
_MOST_BYTES_PER_CHARACTER = 4
_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80  # of UTF-8


def one_line(text: str) -> str:
    """The text of a line without characters that would begin another one, or drive a terminal. A client chooses its own
    name, and that of its group, and must not write lines of its own into the log with them."""
    return text.translate(_ESCAPES)


def safe_json(text: str) -> str:
    """JSON with the same escaped that `json.dumps` leaves as it is."""
    return text.translate(_ESCAPES_OF_JSON)


def shorten(text: str, most_bytes: int = VALUE_BYTES) -> str:
    """The text, cut at a character after `most_bytes` at most, with how much was left out: `name…(+31,900 bytes)`."""
    if len(text) * _MOST_BYTES_PER_CHARACTER <= most_bytes:
        return text
    size_bytes = _size_bytes(text)
    if size_bytes <= most_bytes:
        return text
    data = text[: most_bytes + 1].encode(errors="surrogatepass")
    end = _character_start(data, most_bytes)
    return f"{_text(data[:end])}…(+{size_bytes - end:,} bytes)"


def _character_start(data: bytes, position: int) -> int:
    """Where the character begins that the byte at `position` is part of."""
    while position > 0 and data[position] & _CONTINUATION_MASK == _CONTINUATION:
        position -= 1
    return position


def _text(data: bytes) -> str:
    return data.decode(errors="surrogatepass")


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


class _Brief:
    """Stands for a value in a line."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return shorten(str(self._value))

    def __repr__(self) -> str:
        return shorten(repr(self._value))


def _brief(value: object) -> object:
    if isinstance(value, int | float):
        return value
    return shorten(value) if isinstance(value, str) else _Brief(value)


def message_of(record: logging.LogRecord) -> str:
    """The message of a line, bounded. Values that do not fit their template are a defect, but no reason to lose it."""
    template, args = str(record.msg), record.args
    try:
        if isinstance(args, Mapping):
            text = template % {name: _brief(value) for name, value in args.items()}
        else:
            text = template % tuple(_brief(value) for value in args) if args else template
    except Exception as error:  # noqa: BLE001 - a value's own `__str__` may raise anything
        text = f"{template} (its values do not fit: {type(error).__name__})"
    return shorten(text, LINE_BYTES)


def traceback_of(record: logging.LogRecord) -> str | None:
    """The traceback of a line, bounded, without escapes for terminals; None for a line without one."""
    if record.exc_text:
        return record.exc_text
    if not record.exc_info or record.exc_info[0] is None:
        return None
    lines = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n").split("\n")
    text = "\n".join(shorten(one_line(line)) for line in lines)
    size_bytes = _size_bytes(text)
    if size_bytes <= TRACEBACK_BYTES:
        return text
    data = text.encode(errors="surrogatepass")
    head_end = _character_start(data, TRACEBACK_BYTES // 2)
    tail_start = _character_start(data, size_bytes - TRACEBACK_BYTES // 2)
    left_out = f"…(+{tail_start - head_end:,} bytes)…"
    return "\n".join((_text(data[:head_end]), left_out, _text(data[tail_start:])))


def bounded_fields(fields: Mapping[str, str | int]) -> dict[str, str | int]:
    """Fields of an event, each bounded."""
    return {name: shorten(value) if isinstance(value, str) else value for name, value in fields.items()}


def bounded(record: logging.LogRecord, message: str) -> logging.LogRecord:
    """A copy of the record with `message`, its bounded message, and a bounded traceback, for any formatter."""
    made = copy.copy(record)
    made.msg, made.args = message, None
    made.exc_text, made.exc_info, made.stack_info = traceback_of(record), None, None
    return made
