"""The promises about speed and footprint: the comparison with Apache Kafka and the absolute limits, each row a check.

Needs root for memory cgroups, about 30 GB of disk for a moment, and an otherwise quiet machine. The rows and every
measurement stay in build/bench/compare-*.json.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from bench.peers import compare, footprint
from tests.harness.fixtures import io_uring_allowed

BACKENDS = ["io_uring", "epoll"] if io_uring_allowed() else ["epoll"]


@pytest.mark.parametrize("section", compare.ALL_SECTIONS)
def test_beside_apache_kafka(section: str) -> None:
    """Every row of a section holds its limit."""
    arguments = ["--sections", section, "--output", f"build/bench/compare-{section}.json"]
    if "io_uring" not in BACKENDS:
        arguments += ["--backend", "epoll", "--other-backend", "none"]
    assert compare.main(arguments) == 0, f"rows fail: see build/bench/compare-{section}.json"


@pytest.mark.parametrize("io_backend", BACKENDS)
def test_footprint(io_backend: str) -> None:
    """Time to the first record, memory, and CPU when idle."""
    rows = footprint.measure(io_backend, Path(tempfile.gettempdir()), seconds=10)
    assert [row.as_json() for row in rows if not row.passed] == []
