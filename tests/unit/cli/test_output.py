"""Tables for people, as wide as their terminal, and lines for pipes."""

from __future__ import annotations

import pytest

from pybroker.cli import output
from pybroker.cli.output import Column

COLUMNS = [Column("name", "name"), Column("count", "count", number=True), Column("flag", "flag")]
ROWS = [
    {"name": "a-topic-with-" + "a-long-name-" * 6 + "end", "count": 1234567, "flag": True},
    {"name": "[bold]no markup[/]", "count": None, "flag": []},
]


def test_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    output.print_table(COLUMNS, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ROWS[0]["name"]
    assert lines[1:3] == ["  count: 1,234,567", "  flag: yes"]
    assert lines[3:] == ["[bold]no markup[/]", "  count: -", "  flag: -"]


def test_ids_have_no_separators(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    output.print_table(
        [Column("pid", "Process", ids=True), Column("lag", "lag", number=True)], [{"pid": 41234, "lag": 41234}]
    )
    assert capsys.readouterr().out.splitlines()[1].split() == ["41234", "41,234"]


def test_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(COLUMNS, [{"name": "a\tb\nc", "count": 1234567, "flag": False}])
    assert capsys.readouterr().out == "name\tcount\tflag\na\\tb\\nc\t1234567\tno\n"
