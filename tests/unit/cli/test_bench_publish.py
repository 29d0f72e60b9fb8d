"""`pybroker bench publish` into a directory. tests/verify/spark/test_aggregate.py has it publish to a topic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main

FIXTURES = Path(__file__).parents[1] / "results" / "fixtures"


def publish(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["bench", "publish", *map(str, arguments)])


def lines(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in directory.iterdir() for line in path.read_text().splitlines()]


def test_rows_and_rejections_go_to_one_file(tmp_path: Path) -> None:
    done = publish(FIXTURES, "--directory", tmp_path, "--machine", "mine", "--commit", "f" * 40)
    assert done.exit_code == 1
    assert "4 to quarantine: 3 not_a_number, 1 failed" in done.stderr
    published = lines(tmp_path)
    assert len([line for line in published if "rejected" in line]) == 4
    assert len({str(line["key"]) for line in published if "key" in line}) == len(published) - 4
    loads = [line for line in published if line.get("suite") == "load"]
    assert {(line["machine"], line["commit"], line["commit_time"]) for line in loads} == {("mine", "f" * 40, "")}


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    arguments = (FIXTURES / "peers.json", "--directory", tmp_path)
    assert publish(*arguments).exit_code == 0
    before = [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]
    assert publish(*arguments).exit_code == 0
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == before


def test_settings_that_a_file_does_not_tell_are_given(tmp_path: Path) -> None:
    given = ("--commit", "f" * 40, "--engine", "direct", "--durability", "acks", "--parameter", "codec=lz4")
    assert publish(FIXTURES / "pbload.json", "--directory", tmp_path, *given).exit_code == 0
    for line in lines(tmp_path):
        assert (line["engine"], line["durability"]) == ("direct", "acks")
        assert isinstance(line["parameters"], dict)
        assert line["parameters"]["codec"] == "lz4"


@pytest.mark.parametrize(
    "arguments",
    [
        (FIXTURES,),
        (FIXTURES, "--directory", "x", "--bootstrap", "127.0.0.1:1"),
        (FIXTURES / "missing.json", "--directory", "x"),
        (FIXTURES, "--directory", "x", "--parameter", "codec"),
    ],
)
def test_a_wrong_command_line_says_so(arguments: tuple[str | Path, ...]) -> None:
    done = publish(*arguments)
    assert done.exit_code == 2
    assert "Usage" in done.stderr


def test_a_directory_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = publish(FIXTURES / "pbload.json", "--directory", tmp_path / "file")
    assert done.exit_code == 3
    assert "takes no results" in done.stderr
