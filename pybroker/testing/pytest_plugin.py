"""The pytest plugin: `kafka_broker` for all tests of a session, `kafka_topic` for one test, `fresh_kafka_broker` to
break.

pytest finds it by its entry point. Each worker of pytest-xdist has a broker of its own, started with the first test
that asks for one. Nothing is started for tests that ask for none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from pybroker.testing import Broker

_FIXTURES = frozenset({"kafka_broker", "fresh_kafka_broker", "kafka_topic"})
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS = 200
_numbers = itertools.count(1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the process that forks brokers import what it needs while the first tests run."""
    if session.config.option.collectonly:
        return
    if any(_FIXTURES.intersection(getattr(item, "fixturenames", ())) for item in session.items):
        from pybroker.testing.embedded.launcher import launcher

        launcher()


def pytest_unconfigure() -> None:
    """End that process."""
    from pybroker.testing.embedded.launcher import close

    close()


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A broker that all tests of this worker share: let it be, and use topics and groups of your own."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def fresh_kafka_broker() -> Iterator[Broker]:
    """A broker for this test alone, which may kill it, cut its network, fail its disk."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: Broker) -> str:
    """The name of an empty topic on `kafka_broker` with one partition, which no other test has."""
    name = f"{_NOT_IN_NAMES.sub('-', request.node.name)[:_NAME_CHARACTERS]}-{next(_numbers)}"
    kafka_broker.create_topic(name)
    return name
