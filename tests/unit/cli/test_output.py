"""Tables for people, as wide as their terminal, and lines for pipes."""

from __future__ import annotations

import pytest

from pybroker.cli import output
from pybroker.cli.output import Column

COLUMNS = [Column("name", "name", fold=True), Column("count", "count", number=True), Column("flag", "flag")]
ROWS = [
    {"name": "a-topic-with-" + "a-long-name-" * 6 + "end", "count": 1234567, "flag": True},
    {"name": "[bold]no markup[/]", "count": None, "flag": []},
]


def test_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    output.print_table(COLUMNS, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "1,234,567" in lines[1]
    assert "".join(line.split()[0] for line in lines[1:3]) == ROWS[0]["name"]
    assert lines[3].split() == ["[bold]no", "markup[/]", "-", "-"]


def test_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(COLUMNS, [{"name": "a\tb\nc", "count": 1234567, "flag": False}])
    assert capsys.readouterr().out == "name\tcount\tflag\na\\tb\\nc\t1234567\tno\n"
