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
    (tmp_path / "latin.properties").write_bytes(b"a=\xe9\n")
    with pytest.raises(ConfigError, match="byte 2 is not UTF-8"):
        read_properties(tmp_path / "latin.properties")


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
