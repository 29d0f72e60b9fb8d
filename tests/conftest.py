"""Shared by all tests: where a skipped test is a failure, and that what they start heeds an interrupt.

Tests may skip themselves when a tool is not installed. In CI every tool is, so a skip there means that something went
unchecked: with `PYBROKER_NO_SKIP=1` each skip fails, of a test as of a whole module.
"""

import os
import signal
from collections.abc import Generator

import pytest

NO_SKIP = os.environ.get("PYBROKER_NO_SKIP") == "1"


def pytest_configure() -> None:
    """A shell has what it starts in the background ignore SIGINT, which all its children inherit."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: PYBROKER_NO_SKIP=1 allows no skip: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of one test."""
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Of one module, which may skip itself whole."""
    report = yield
    _fail_if_skipped(report)
    return report
