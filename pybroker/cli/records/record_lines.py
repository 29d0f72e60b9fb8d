"""Records as lines: what `pybroker produce` reads and `pybroker consume` writes, plain or as JSON. Pure.

A plain line is Kafka's: headers, key and value with separators between, each where it was asked for. The two JSON
forms are one, so that what was consumed can be produced again. Fails with `LineError`, which says what a line lacks.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pybroker.cli.times import iso_text

Headers = list[tuple[str, bytes | None]]

#: The timestamp of a record without one.
NO_TIME = -1


class LineError(ValueError):
    """A line that is no record."""


@dataclass(slots=True)
class Record:
    """A record to send, or one received with where it was. `time_ms` is NO_TIME for the moment of sending."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)
    time_ms: int = NO_TIME
    is_append_time: bool = False
    topic: str = ""
    partition: int = -1
    offset: int = -1


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def unescape(text: str) -> bytes:
    r"""A separator from the command line: \t, \n, \r, \0 and \\ are what they are elsewhere."""
    return re.sub(r"\\([tnr0\\])", lambda match: _ESCAPES[match[1]], text).encode()


@dataclass(frozen=True, slots=True)
class PlainReader:
    """The parts of a plain line to read. `key_separator` is None for lines that are values; `null_marker` stands for no
    value."""

    key_separator: bytes | None = None
    has_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    ignores_errors: bool = False

    def read(self, line: bytes) -> Record:
        """The record of a line, which comes without its line feed."""
        headers: Headers = []
        rest, key = line, None
        if self.has_headers:
            text, rest = self._split(rest, self.headers_delimiter, "headers")
            headers = [self._header(each) for each in text.split(self.headers_separator)] if text else []
        if self.key_separator is not None:
            key, rest = self._split(rest, self.key_separator, "a key")
        return Record(self._or_null(rest), self._or_null(key), headers)

    def _split(self, line: bytes, separator: bytes, what: str) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(separator)
        if not found:
            if self.ignores_errors:
                return None, line
            raise LineError(f"{separator!r} should stand behind {what}")
        return before, after

    def _header(self, text: bytes) -> tuple[str, bytes | None]:
        name, found, value = text.partition(self.headers_key_separator)
        if not found and not self.ignores_errors:
            raise LineError(f"{self.headers_key_separator!r} should stand in the header {text!r}")
        return name.decode(errors="replace"), self._or_null(value)

    def _or_null(self, value: bytes | None) -> bytes | None:
        return None if value is None or (self.null_marker is not None and value == self.null_marker) else value


@dataclass(frozen=True, slots=True)
class PlainWriter:
    """The parts of a plain line to write, in this order. `time_text` makes text of a record's time."""

    time_text: Callable[[Record], str] | None = None
    shows_partition: bool = False
    shows_offset: bool = False
    shows_headers: bool = False
    shows_key: bool = False
    shows_value: bool = True
    separator: bytes = b"\t"
    headers_separator: bytes = b","
    line_separator: bytes = b"\n"
    null_text: bytes = b"null"

    def write(self, record: Record) -> bytes:
        """A line with its end."""
        parts = []
        if self.time_text is not None:
            parts.append(self.time_text(record).encode())
        if self.shows_partition:
            parts.append(b"Partition:%d" % record.partition)
        if self.shows_offset:
            parts.append(b"Offset:%d" % record.offset)
        if self.shows_headers:
            parts.append(self._headers(record.headers))
        if self.shows_key:
            parts.append(self._or_null(record.key))
        if self.shows_value:
            parts.append(self._or_null(record.value))
        return self.separator.join(parts) + self.line_separator

    def _headers(self, headers: Headers) -> bytes:
        if not headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(b"%s:%s" % (name.encode(), self._or_null(value)) for name, value in headers)

    def _or_null(self, value: bytes | None) -> bytes:
        return self.null_text if value is None else value


def kafka_time_text(record: Record) -> str:
    """As Kafka's console consumer prints it."""
    if record.time_ms == NO_TIME:
        return "NO_TIMESTAMP"
    return f"{'LogAppendTime' if record.is_append_time else 'CreateTime'}:{record.time_ms}"


def ms_text(record: Record) -> str:
    """Milliseconds since 1970."""
    return str(record.time_ms)


def utc_text(record: Record) -> str:
    """ISO 8601."""
    return iso_text(record.time_ms) if record.time_ms != NO_TIME else "-"


def write_json(record: Record) -> bytes:
    """One line. Bytes that are no UTF-8 go as base64, under a name that says so."""
    line: dict[str, Any] = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    if record.time_ms != NO_TIME:
        line["timestamp_ms"] = record.time_ms
        line["timestamp_type"] = "LogAppendTime" if record.is_append_time else "CreateTime"
    for name, value in (("key", record.key), ("value", record.value)):
        line.update(_as_json(name, value))
    line["headers"] = [{"name": name, **_as_json("value", value)} for name, value in record.headers]
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _as_json(name: str, value: bytes | None) -> dict[str, str | None]:
    try:
        return {name: value.decode() if value is not None else None}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}


def read_json(line: bytes) -> Record:
    """Reads a line of `write_json`; a record may have less, but for its value."""
    try:
        found = json.loads(line)
    except ValueError as error:  # no UTF-8 as well
        raise LineError(f"this is no JSON: {error}") from None
    if not isinstance(found, dict) or not {"value", "value_base64"} & found.keys():
        raise LineError('a record is an object with at least "value", or "value_base64"')
    headers = found.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(each, dict) and isinstance(each.get("name"), str) for each in headers
    ):
        raise LineError('"headers" is a list of objects with "name" and "value"')
    time_ms = found.get("timestamp_ms", NO_TIME)
    if not isinstance(time_ms, int) or isinstance(time_ms, bool):
        raise LineError('"timestamp_ms" is a whole number')
    named = [(each["name"], _from_json("value", each)) for each in headers]
    return Record(_from_json("value", found), _from_json("key", found), named, time_ms)


def _from_json(name: str, found: Mapping[str, Any]) -> bytes | None:
    encoded = found.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise LineError(f'"{name}_base64" is not base64') from None
    value = found.get(name)
    if value is None or isinstance(value, str):
        return value.encode() if value is not None else None
    # A number or an object is taken for its JSON, so that documents need no quoting.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
