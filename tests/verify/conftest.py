"""Acceptance checks share the broker fixtures of the client tests, and add a broker with sanitizers in its C code, and
settings of each append engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.crash.engines import DIRECT, PACED, EngineTurns
from tests.harness.fixtures import backends, started_broker
from tests.harness.kafka import KafkaBroker
from tests.harness.rounds import rounds
from tests.harness.sanitizer import Sanitized

__all__ = ["rounds"]

_ASAN = "-asan"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test once per backend; those that share a broker once more per backend of ours with sanitizers."""
    if "backend" in metafunc.fixturenames:
        found = backends()
        if "running_broker" in metafunc.fixturenames:
            found += [backend + _ASAN for backend in found if backend != "kafka"]
        metafunc.parametrize("backend", found, scope="module")


@pytest.fixture(scope="module")
def running_broker(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | KafkaBroker]:
    """A broker for all tests of a module, stopped at the end; whatever a sanitizer then has to report is an error."""
    if not backend.endswith(_ASAN):
        with started_broker(backend) as broker:
            yield broker
        return
    sanitized = Sanitized(tmp_path_factory.mktemp("reports"))
    try:
        with started_broker(backend.removesuffix(_ASAN), sanitized.environment()) as broker:
            assert isinstance(broker, BrokerProcess)
            sanitized.check_loaded(broker.pid)
            yield broker
    finally:
        assert not sanitized.reports(), sanitized.reports()


@pytest.fixture(params=[PACED, DIRECT])
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings of each append engine."""
    turns = EngineTurns([request.param])
    yield turns.overrides(0)
    turns.close()
