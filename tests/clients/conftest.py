"""The broker that client tests talk to: pybroker on each I/O backend, or Apache Kafka with PYBROKER_TEST_BROKER=kafka.

Running the same tests against Apache Kafka shows that a failure is the broker's and not the test's.
"""

from __future__ import annotations

import pytest

from tests.harness.fixtures import backends, running_broker

__all__ = ["pytest_generate_tests", "running_broker"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses the broker once per backend."""
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", backends(), scope="module")
