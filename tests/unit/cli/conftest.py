"""Commands against a broker: `run` calls one in this process, as in a pipe; `lines_of` has its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main
from pybroker.testing import Broker

Run = Callable[..., Result]


@pytest.fixture
def run(kafka_broker: Broker) -> Run:
    def call(*words: str, stdin: bytes | None = None, status: int = 0) -> Result:
        result = CliRunner().invoke(
            main, words, input=stdin, env={"PYBROKER_BOOTSTRAP_SERVER": kafka_broker.bootstrap_servers}
        )
        assert result.exit_code == status, result.output + repr(result.exception)
        return result

    return call


@pytest.fixture
def lines_of(run: Run) -> Callable[..., list[Any]]:
    def call(*words: str) -> list[Any]:
        return [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]

    return call
