"""Records as lines, read and written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cli.records.record_lines import (
    NO_TIME,
    LineError,
    PlainReader,
    PlainWriter,
    Record,
    kafka_time_text,
    read_json,
    unescape,
    write_json,
)

BYTES = st.none() | st.binary(max_size=20)


@given(
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3),
    time_ms=st.integers(0, 1 << 50),
)
def test_what_was_consumed_as_json_can_be_produced(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], time_ms: int
) -> None:
    line = write_json(Record(value, key, headers, time_ms, topic="t", partition=0, offset=1))
    assert line.count(b"\n") == 1
    assert read_json(line) == Record(value, key, headers, time_ms)


def test_json_is_for_programs() -> None:
    found = json.loads(write_json(Record(b"\xff", b"k", [("h", None)], 5, True, "t", 3, 9)))
    assert found == {
        "topic": "t",
        "partition": 3,
        "offset": 9,
        "timestamp_ms": 5,
        "timestamp_type": "LogAppendTime",
        "key": "k",
        "value_base64": "/w==",
        "headers": [{"name": "h", "value": None}],
    }


def test_a_document_needs_no_quoting() -> None:
    assert read_json(b'{"value": {"a": [1, "x"]}, "key": 7}') == Record(b'{"a":[1,"x"]}', b"7")


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"",
            b"x",
            b"[]",
            b'{"key": "k"}',
            b'{"value": "v", "headers": ["h"]}',
            b'{"value": "v", "timestamp_ms": "now"}',
        ),
        *(b'{"value_base64": "?"}', b'{"value_base64": 1}', b"\xff"),
    ],
)
def test_json_that_is_no_record(line: bytes) -> None:
    with pytest.raises(LineError):
        read_json(line)


def test_plain_lines() -> None:
    assert PlainReader().read(b"a\tb") == Record(b"a\tb")
    reader = PlainReader(key_separator=b"\t", has_headers=True, null_marker=b"NULL")
    assert reader.read(b"a:1,b:\tk\tv\tw") == Record(b"v\tw", b"k", [("a", b"1"), ("b", b"")])
    assert reader.read(b"\tk\tNULL") == Record(None, b"k")
    for line, says in ((b"v", "headers"), (b"a:1\tv", "a key"), (b"a\tk\tv", "header")):
        with pytest.raises(LineError, match=says):
            reader.read(line)
    assert PlainReader(key_separator=b"=", ignores_errors=True).read(b"v") == Record(b"v")


def test_written_as_kafkas_console_consumer_does() -> None:
    everything = PlainWriter(kafka_time_text, True, True, True, True)
    record = Record(None, b"k", [("a", b"1"), ("b", None)], 1700, False, "t", 2, 40)
    assert everything.write(record) == b"CreateTime:1700\tPartition:2\tOffset:40\ta:1,b:null\tk\tnull\n"
    assert everything.write(Record(b"v", time_ms=NO_TIME, partition=0, offset=0)).startswith(b"NO_TIMESTAMP\t")
    assert PlainWriter().write(record) == b"null\n"


def test_separators_from_the_command_line() -> None:
    assert unescape(r"\t|\\t\n") == b"\t|\\t\n"
