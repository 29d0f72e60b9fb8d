"""Tables and paragraphs for terminals of any width: names, commands, ids and figures are never broken or cut off.

A column of sentences goes on below, between words. A table that does not fit all the same is written row by row, a line
for each value. Cells are rich's markup; escape what may hold a bracket.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_GAP = 2
_INDENT = "  "
_COMMAND = re.compile(r"`[^`]*`")
#: Stands for a blank that no line ends at.
_HARD_BLANK = "\x00"


class Title(NamedTuple):
    """The head of a column. `is_number` sets it to the right; `is_prose` lets it go on below, between words."""

    text: str
    is_number: bool = False
    is_prose: bool = False


def wrap(text: str, width: int, first: str = "", rest: str = "") -> str:
    """`text` in lines of `width`, the first one behind `first`, the others behind `rest`. Neither words nor commands in
    backquotes are broken, so a line may be longer."""
    kept = _COMMAND.sub(lambda found: found.group().replace(" ", _HARD_BLANK), text)
    lines = textwrap.wrap(
        kept, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(_HARD_BLANK, " ")


def print_text(console: Console, text: str, style: str = "") -> None:
    """A paragraph of plain text, which may hold anything."""
    from rich.text import Text

    console.print(Text(wrap(text, console.width), style), soft_wrap=True)


def print_cells(console: Console, titles: Sequence[Title], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as the console at most, or its rows one by one."""
    from rich.text import Text

    cells = [[Text.from_markup(cell) for cell in row] for row in rows]
    widths = [
        max([len(title.text), *(_least(row[index], title) for row in cells)]) for index, title in enumerate(titles)
    ]
    if sum(widths) + _GAP * (len(widths) - 1) <= console.width:
        _print_table(console, titles, cells, widths)
    else:
        _print_rows(console, titles, cells)


def _least(cell: Text, title: Title) -> int:
    """The columns that the cell takes at least."""
    from rich.cells import cell_len

    if not title.is_prose:
        return cell.cell_len
    return max(map(cell_len, wrap(cell.plain, 1).split("\n")))


def _print_table(
    console: Console, titles: Sequence[Title], cells: Sequence[Sequence[Text]], widths: Sequence[int]
) -> None:
    from rich.table import Table

    has_titles = any(title.text for title in titles)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0), show_header=has_titles)
    for title, width in zip(titles, widths, strict=True):
        table.add_column(
            title.text,
            justify="right" if title.is_number else "left",
            no_wrap=not title.is_prose,
            min_width=width,
            overflow="fold",
        )
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _print_rows(console: Console, titles: Sequence[Title], cells: Sequence[Sequence[Text]]) -> None:
    from rich.text import Text

    for row in cells:
        console.print(row[0], soft_wrap=True)
        for title, cell in zip(titles[1:], row[1:], strict=True):
            name = f"{_INDENT}{title.text}: " if title.text else _INDENT
            if title.is_prose:
                console.print(Text(wrap(cell.plain, console.width, name, _INDENT * 2)), soft_wrap=True)
            elif cell.plain:
                console.print(Text.assemble(name, cell), soft_wrap=True)
