"""Names, commands, ids and figures stay whole at any width of a terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape

from pybroker.cli.tables import Title, print_cells, print_text, wrap

WIDTHS = (60, 80, 120)
TITLES = [Title("topic"), Title("offset", is_number=True), Title("why", is_prose=True)]


def shown(width: int, rows: list[list[str]], titles: list[Title] = TITLES) -> list[str]:
    out = io.StringIO()
    print_cells(Console(file=out, width=width, highlight=False), titles, rows)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_that_fits_is_one(width: int) -> None:
    lines = shown(width, [["orders", "1,234,567", "it is due " * 20]])
    assert lines[0].split() == ["topic", "offset", "why"]
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("orders  1,234,567")


def test_a_table_that_does_not_fit_is_written_row_by_row() -> None:
    name = "a-topic-with-" + "a-long-name-" * 6
    lines = shown(60, [[name, "1,234,567", "too long a name"], ["b", "2", "short"]])
    assert lines == [name, "  offset: 1,234,567", "  why: too long a name", "b", "  offset: 2", "  why: short"]


words = st.text(st.characters(categories=["L", "N"], include_characters="-_./[]"), min_size=1, max_size=70)


@given(st.lists(st.tuples(words, words, st.lists(words, max_size=12)), min_size=1, max_size=4), st.sampled_from(WIDTHS))
def test_no_value_is_broken_or_cut(rows: list[tuple[str, str, list[str]]], width: int) -> None:
    cells = [[escape(name), escape(figure), escape(" ".join(prose))] for name, figure, prose in rows]
    whole = {word for line in shown(width, cells) for word in line.split()}
    assert {word for name, figure, prose in rows for word in (name, figure, *prose)} <= whole


@given(st.lists(words, min_size=1, max_size=30), st.sampled_from(WIDTHS))
def test_only_a_long_word_makes_a_long_line(text: list[str], width: int) -> None:
    for line in wrap(" ".join(text), width).split("\n"):
        assert cell_len(line) <= width or " " not in line or any(cell_len(word) > 1 for word in line)


def test_commands_stay_on_one_line() -> None:
    command = "`rm -r /var/lib/pybroker/__consumer_offsets-17-stray --verbose`"
    text = f"if nobody needs the directory any more, run {command} as the user of the broker"
    assert command in wrap(text, 60, "  do: ", " " * 6)
    assert "--verbose" in wrap("say it with --verbose " * 6, 60).split("\n")[0]


def test_text_may_hold_brackets() -> None:
    out = io.StringIO()
    print_text(Console(file=out, width=60), "[bold]no markup[/] in a note")
    assert out.getvalue() == "[bold]no markup[/] in a note\n"
