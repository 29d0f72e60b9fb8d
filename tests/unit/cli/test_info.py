"""`pybroker info`, and counts in `pybroker topics list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.commands.topics import list as topics_list
from pybroker.cli.main import main

Run = Callable[..., Result]
Lines = Callable[..., list[Any]]


def test_a_cluster_at_a_glance(run: Run, lines_of: Lines) -> None:
    run("topics", "create", "--topic", "cli-info", "--partitions", "5")
    (found,) = lines_of("info")
    (broker,) = found["brokers"]
    assert (broker["id"], broker["controller"]) == (1, True)
    assert found["partitions"] == broker["leads"] == broker["replicas"] >= 5
    assert (found["offline"], found["under_replicated"]) == (0, 0)
    text = run("info").stdout
    assert f"cluster:          {found['cluster']}\n" in text and "\t127.0.0.1:" in text


def test_a_terminal_gets_counts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("topics", "create", "--topic", "cli-counted", "--partitions", "3")
    monkeypatch.setattr(topics_list, "is_terminal", lambda: True)
    rows = [line.split() for line in run("topics", "list").stdout.splitlines()]
    assert rows[0] == ["topic", "partitions", "replicas", "internal"]
    assert ["cli-counted", "3", "1", "no"] in rows


@pytest.mark.parametrize("words", [["-h"], ["topics", "-h"], ["topics", "list", "-h"], ["serve", "-h"]])
def test_h_is_help(words: list[str]) -> None:
    asked = CliRunner().invoke(main, words)
    assert asked.exit_code == 0 and asked.output.startswith("Usage: ")
