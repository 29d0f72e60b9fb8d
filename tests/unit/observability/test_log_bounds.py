"""How long what is logged may be, whoever chose it, and what of it must not reach a terminal as it is."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from pybroker.observability import log_bounds
from pybroker.observability.log_bounds import (
    LINE_BYTES,
    TRACEBACK_BYTES,
    VALUE_BYTES,
    bounded,
    message_of,
    one_line,
    safe_json,
    shorten,
    traceback_of,
)
from pybroker.observability.logging import JsonFormatter, TextFormatter


def record(message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("pybroker.test", logging.WARNING, "/code.py", 7, message, args, None)


def failed(text: str, depth: int = 0) -> logging.LogRecord:
    def fail(left: int) -> None:
        if left > 0:
            fail(left - 1)
        raise ValueError(text)

    made = record("it failed")
    try:
        fail(depth)
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


@pytest.mark.parametrize("character", ["x", "é", "€", "😀", "\x1b", "\udc80"])
def test_a_long_value_is_cut_at_a_character_and_says_by_how_much(character: str) -> None:
    text = character * 32_767
    size_bytes = len(text.encode(errors="surrogatepass"))
    head, _, rest = shorten(text).partition("…")
    left_out_bytes = int(rest.removeprefix("(+").removesuffix(" bytes)").replace(",", ""))
    assert set(head) == {character}
    assert len(head.encode(errors="surrogatepass")) + left_out_bytes == size_bytes
    assert VALUE_BYTES - 4 < len(head.encode(errors="surrogatepass")) <= VALUE_BYTES


def test_what_is_short_enough_stays() -> None:
    for text in ("", "a" * VALUE_BYTES, "😀" * (VALUE_BYTES // 4)):
        assert shorten(text) is text
    assert shorten("name" + "x" * 31_900, 4) == "name…(+31,900 bytes)"


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("template", "args", "expected"),
    [
        ("%s has %d of %r after %.1f s", ("a", 3, "b", 0.25), "a has 3 of 'b' after 0.2 s"),
        ("plain 100%", (), "plain 100%"),
        ("%(a)s", ({"a": "mapped"},), "mapped"),
        ("%-5s|%5s", ("a", ValueError("b")), "a    |    b"),
        ("%d", ("no number",), "%d (its values do not fit: TypeError)"),
        ("%s", (Broken(),), "%s (its values do not fit: RuntimeError)"),
    ],
)
def test_messages_are_made_as_logging_makes_them(template: str, args: tuple[object, ...], expected: str) -> None:
    assert message_of(record(template, *args)) == expected


def test_each_value_of_a_line_is_cut_by_itself() -> None:
    text = message_of(record("%s, then %r, then %s: closed", "a" * 40_000, ValueError("b" * 40_000), "end"))
    assert text.startswith("aaa")
    assert text.endswith(", then end: closed")
    assert len(text) < 3 * VALUE_BYTES


def test_lines_and_tracebacks_are_bounded_in_every_format() -> None:
    huge = "\x1b[2J😀" * 400_000
    for made in (record("%s" * 20, *[huge] * 20), record(huge), failed(huge), failed("a\n" * 100_000, depth=500)):
        line = bounded(made, message_of(made))
        text = TextFormatter(coloured=False).format(line)
        assert "\x1b" not in text
        assert len(text.encode()) <= 8 * LINE_BYTES + 4 * TRACEBACK_BYTES
        assert len(JsonFormatter().format(line)) <= 8 * LINE_BYTES + 8 * TRACEBACK_BYTES


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    text = traceback_of(failed("the reason", depth=0))
    assert text is not None
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("\nValueError: the reason")
    long = traceback_of(failed("line\n" * 10_000 + "the end"))
    assert long is not None
    assert long.startswith("Traceback (most recent call last):\n")
    assert long.endswith("\nthe end")
    assert len(long.encode()) < TRACEBACK_BYTES + 100


def test_no_text_in_a_traceback_passes_for_a_line_of_the_log() -> None:
    forged = "2023-11-14T22:13:20.250Z [error   ] all is lost [pybroker]"
    made = failed(f"a\n{forged}\u2028{forged}\x85{forged}\r{forged}")
    first, *rest = TextFormatter(coloured=False).format(bounded(made, message_of(made))).splitlines()
    assert first.endswith("it failed [pybroker.test]")
    assert all(line.startswith("    ") for line in rest)


def test_escapes_and_changes_of_direction_are_visible() -> None:
    for code in (*range(32), *range(127, 160), 0x2028, 0x2029, 0x202E, 0x2066, 0x200F):
        text = one_line(f"a{chr(code)}b")
        assert (text == "a\tb") if chr(code) == "\t" else (text.isprintable() and len(text) > 3), hex(code)
        plain = json.dumps(f"a{chr(code)}b", ensure_ascii=False)
        assert safe_json(plain).isprintable()
        assert json.loads(safe_json(plain)) == f"a{chr(code)}b"


def test_a_copy_is_bounded_and_the_record_stays_for_other_handlers() -> None:
    made = failed("reason")
    copied = bounded(made, "short")
    assert (copied.getMessage(), copied.exc_info) == ("short", None)
    assert made.exc_info is not None
    assert made.getMessage() == "it failed"
    assert log_bounds.traceback_of(copied) == log_bounds.traceback_of(made)
