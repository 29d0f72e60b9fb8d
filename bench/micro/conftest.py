"""Parts that the benchmarks share: the cases in C, and a table of the cost of one call behind pytest-benchmark's
own."""

from __future__ import annotations

import functools

import pytest

from bench.micro.cases import Cases
from bench.micro.summary import table


@functools.cache
def _built() -> Cases:
    return Cases()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each case in C."""
    if "name" in metafunc.fixturenames and "cases" in metafunc.fixturenames:
        metafunc.parametrize("name", _built().by_name)


@pytest.fixture(scope="session")
def cases() -> Cases:
    """The shared object, up to date."""
    return _built()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Medians by call, with what is known of them."""
    session = getattr(config, "_benchmarksession", None)
    benchmarks = [each for each in session.benchmarks if each] if session is not None else []
    for line in table([(each.name, each.extra_info, each.stats.data) for each in benchmarks]):
        terminalreporter.write_line(line)
