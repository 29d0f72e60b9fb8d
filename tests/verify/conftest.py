"""Acceptance checks share the broker fixture of the client tests."""

from __future__ import annotations

import pytest

from pybroker.testing.fixtures import backends, running_broker

__all__ = ["pytest_generate_tests", "running_broker"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses the broker once per backend."""
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", backends(), scope="module")
