"""Names as arguments and as options, and their completion."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import Result

from pybroker.cli.main import main
from pybroker.testing import Broker

Run = Callable[..., Result]
Lines = Callable[..., list[Any]]


def completed(*words: str) -> list[str]:
    """What a shell offers for the last word."""
    complete = ShellComplete(main, {}, "pybroker", "_PYBROKER_COMPLETE")
    return [each.value for each in complete.get_completions(list(words[:-1]), words[-1])]


def test_topics_as_arguments_and_options(run: Run, lines_of: Lines) -> None:
    run("topics", "create", "names-a", "--partitions", "2")
    run("topics", "create", "--topic", "names-b")
    found = lines_of("topics", "describe", "names-a", "--topic", "names-b")
    assert [each["topic"] for each in found] == ["names-a", "names-b"]
    run("topics", "delete", "names-a", "--topic", "names-b")
    assert not {"names-a", "names-b"} & set(run("topics", "list").stdout.splitlines())


@pytest.mark.parametrize(
    "words", [["topics", "create"], ["topics", "create", "a", "--topic", "b"], ["topics", "delete"], ["produce"]]
)
def test_a_missing_or_superfluous_name_is_a_usage_error(run: Run, words: list[str]) -> None:
    assert "TOPIC" in run(*words, status=2).stderr


def test_a_group_as_an_argument(run: Run) -> None:
    assert "names-nobody" in run("groups", "describe", "names-nobody", status=1).stderr


def test_a_shell_completes_topics(run: Run, kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBROKER_BOOTSTRAP_SERVER", kafka_broker.bootstrap_servers)
    run("topics", "create", "names-completed")
    assert completed("topics", "describe", "names-comp") == ["names-completed"]
    assert completed("consume", "--topic", "names-comp") == ["names-completed"]
    assert completed("topics", "delete", "names-nothing-like-it") == []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PYBROKER_BOOTSTRAP_SERVER", f"127.0.0.1:{silent.getsockname()[1]}")
        assert completed("topics", "describe", "names-comp") == []


def test_a_shell_completes_settings() -> None:
    assert completed("config", "docs", "log.retention.h") == ["log.retention.hours"]
    assert completed("configs", "alter", "--delete-config", "retention.b") == ["retention.bytes"]


def test_every_option_for_a_topic_or_group_completes() -> None:
    """So that a new command does not forget it."""
    found = 0
    stack: list[tuple[str, click.Command]] = [("pybroker", main)]
    while stack:
        path, command = stack.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            stack += [(f"{path} {name}", command.get_command(context, name)) for name in command.list_commands(context)]  # type: ignore[misc]  # each name is one of its commands
            continue
        for parameter in command.params:
            if set(parameter.opts) & {"--topic", "--group"} and "perf" not in path and "bench" not in path:
                found += 1
                has = parameter._custom_shell_complete is not None
                assert has, f"{path} {parameter.opts}"
    assert found > 10


def test_every_command_names_the_broker_alike() -> None:
    stack: list[tuple[str, click.Command]] = [("pybroker", main)]
    found = set()
    while stack:
        path, command = stack.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            stack += [(f"{path} {name}", command.get_command(context, name)) for name in command.list_commands(context)]  # type: ignore[misc]  # each name is one of its commands
            continue
        for parameter in command.params:
            if "--bootstrap" in parameter.opts:
                assert parameter.opts == ["--bootstrap-server", "--bootstrap"], path
                found.add(path.split()[1])
    assert found >= {"topics", "perf", "profile", "doctor", "bench", "config", "metadata", "info"}
