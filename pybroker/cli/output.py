"""The output of commands: tables for people at a terminal, tab separated text for pipes, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from pybroker.observability.log_bounds import one_line, safe_json


@dataclass(frozen=True, slots=True)
class Column:
    """`key` finds the value in a row; numbers are set to the right, and `ids` among them have no thousands separators.
    A column of `prose` goes on below, between words."""

    key: str
    title: str
    number: bool = False
    ids: bool = False
    prose: bool = False


def is_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty()


def plural(count: int, noun: str) -> str:
    """`1 partition`, `3 partitions`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def print_heading(name: str, text: str) -> None:
    """A line above a table."""
    click.echo(f"{click.style(name, bold=True)}: {text}")


def print_json(value: Any) -> None:
    """One line."""
    click.echo(safe_json(json.dumps(value, ensure_ascii=False)))


def print_table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> None:
    """A table for a terminal; in a pipe one line per row and one with the titles, tabs between."""
    if is_terminal():
        _print_rich(columns, rows)
        return
    click.echo("\t".join(column.title for column in columns))
    for row in rows:
        click.echo("\t".join(_text(row.get(column.key), "") for column in columns))


def print_rows(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], as_json: bool) -> None:
    """A table, or each row as JSON with all it has, also what no column shows."""
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(columns, rows)


def _print_rich(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from pybroker.cli.tables import Title, print_cells

    titles = [Title(column.title, column.number, column.prose) for column in columns]
    cells = [[escape(_text(row.get(column.key), "" if column.ids else ",")) for column in columns] for row in rows]
    print_cells(Console(highlight=False), titles, cells)


def _text(value: Any, thousands: str) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:{thousands}}"
        case list() | tuple():
            return ",".join(map(str, value)) or "-"
        case _:
            # A tab or a line feed in a name would make another column of it, and an escape would drive the terminal.
            return one_line(str(value)).replace("\t", "\\t")
