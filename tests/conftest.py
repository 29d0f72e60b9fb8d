"""Shared by all tests: where a skipped test is a failure.

Tests may skip themselves when a tool is not installed. In CI every tool is, so a skip there means that something went
unchecked: with `PYBROKER_NO_SKIP=1` each skip fails.
"""

import os
from collections.abc import Generator

import pytest

NO_SKIP = os.environ.get("PYBROKER_NO_SKIP") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure under PYBROKER_NO_SKIP."""
    report = yield
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped, and PYBROKER_NO_SKIP=1 allows none: {report.longrepr}"
    return report
