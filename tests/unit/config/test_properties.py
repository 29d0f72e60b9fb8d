"""The reader of .properties text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.config.definition import ConfigError
from pybroker.config.properties import Property, format_properties, parse_properties, read_properties


def pairs(text: str) -> list[tuple[str, str]]:
    return [(item.key, item.value) for item in parse_properties(text, "test")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a = b ", [("a", "b ")]),
        ("a:b", [("a", "b")]),
        ("a  b c", [("a", "b c")]),
        ("a = = b", [("a", "= b")]),
        ("a : = b", [("a", "= b")]),
        ("  \t\fa=b", [("a", "b")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("=b", [("", "b")]),
        ("a=b=c:d", [("a", "b=c:d")]),
        ("# c\n ! c\n\na=b", [("a", "b")]),
        ("a=b#c", [("a", "b#c")]),
        ("a=1\r\nb=2\rc=3\n", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a\\ b\\==\\:c", [("a b=", ":c")]),
        ("a=x\\ty\\nz\\q\\\\", [("a", "x\ty\nzq\\")]),
        ("a=\\u0041\\ud83d\\ude00", [("a", "A\U0001f600")]),
        ("a=b\\\n   c\\\n\td", [("a", "bcd")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\\n# c", [("a", "b# c")]),
        ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
        ("a=b\\", [("a", "b")]),
        ("# c\\\na=b", [("a", "b")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("\\\n# c\n\\\n\na=b", [("a", "b")]),
        ("", []),
        ("\\", []),
    ],
)
def test_java_grammar(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_lines_are_those_of_the_keys() -> None:
    text = "# one\n\na=1\\\n  2\nb=3\n"
    assert parse_properties(text, "test") == [Property("a", "12", 3), Property("b", "3", 5)]


@pytest.mark.parametrize("escape", ["\\u", "\\u12", "\\u12g4", "\\u+123"])
def test_a_broken_escape_names_file_and_line(escape: str) -> None:
    with pytest.raises(ConfigError, match=r"^conf:2: .*hexadecimal"):
        parse_properties(f"a=1\nb={escape}", "conf")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: cannot be read"):
        read_properties(tmp_path / "none.properties")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_properties(tmp_path)


def read(directory: Path, data: bytes) -> dict[str, str]:
    path = directory / "server.properties"
    path.write_bytes(data)
    return {item.key: item.value for item in read_properties(path)}


def test_bytes_are_iso_8859_1_as_java_reads_them(tmp_path: Path) -> None:
    assert read(tmp_path, b"# caf\xe9\nbroker.rack=Z\xfcrich\n") == {"broker.rack": "Z\u00fcrich"}
    every = bytes(range(0xA0, 0x100))
    assert read(tmp_path, b"a=" + every) == {"a": every.decode("iso-8859-1")}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be"])
def test_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path, encoding: str) -> None:
    text = "listeners=PLAINTEXT://127.0.0.1:9092\nbroker.rack=Z\u00fcrich\n"
    data = text.encode(encoding) if encoding == "utf-8-sig" else ("\ufeff" + text).encode(encoding)
    assert read(tmp_path, data) == {"listeners": "PLAINTEXT://127.0.0.1:9092", "broker.rack": "Z\u00fcrich"}


def test_bytes_that_break_the_promise_of_the_mark_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.properties: byte 5 is not UTF-8, .*byte order mark"):
        read(tmp_path, b"\xef\xbb\xbfa=\xe9\n")


def test_what_is_written_is_read_again_by_java_too() -> None:
    """Java takes the bytes of a file for ISO 8859-1."""
    properties = {
        "a": "b",
        "with space=and:#!": " leading and trailing ",
        "#no comment": "-----BEGIN\n  KEY-----\r\n",
        "path": "C:\\new\\\u00fc",
        "rack": "Z\u00fcrich \u6771 \U0001f600",
        "odd": "\t\f\x00\x7f\u2028",
        "empty": "",
        "listeners": "PLAINTEXT://[::1]:9092",
    }
    text = format_properties(properties)
    assert text.isascii()
    assert "listeners=PLAINTEXT://[::1]:9092\n" in text
    assert dict(pairs(text.encode().decode("latin-1"))) == properties
