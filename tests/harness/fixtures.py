"""Pytest fixtures for tests that need a running broker, whichever is asked for.

`PYBROKER_TEST_BROKER` is `pybroker` (default: once per I/O backend) or `kafka`, which proves the tests themselves.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker

_SYS_IO_URING_SETUP = 425
# A group forms at once: tests have nobody to wait for.
OVERRIDES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}


def io_uring_allowed() -> bool:
    """Whether the kernel lets this process make a ring: containers and hardened kernels refuse."""
    if platform.system() != "Linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    params = ctypes.create_string_buffer(120)
    fd = int(libc.syscall(_SYS_IO_URING_SETUP, 1, params))
    if fd < 0:
        return False
    os.close(fd)
    return True


def backends() -> list[str]:
    """The values of the `backend` parameter."""
    broker = os.environ.get("PYBROKER_TEST_BROKER", "pybroker")
    if broker == "kafka":
        return ["kafka"]
    if broker != "pybroker":
        raise ValueError(f"PYBROKER_TEST_BROKER is {broker!r}; it can be pybroker or kafka")
    return ["io_uring", "epoll"] if io_uring_allowed() else ["epoll"]


@contextmanager
def started_broker(backend: str, env: Mapping[str, str] | None = None) -> Iterator[BrokerProcess | KafkaBroker]:
    """A broker of that backend (one of `backends`), stopped at the end; `env` is added to pybroker's environment."""
    if backend == "kafka":
        with KafkaBroker(overrides=OVERRIDES) as kafka:
            yield kafka
    else:
        with BrokerProcess(overrides={**OVERRIDES, "pybroker.io.backend": backend}, env=env) as broker:
            yield broker


@pytest.fixture(scope="module")
def running_broker(backend: str) -> Iterator[BrokerProcess | KafkaBroker]:
    """A broker for all tests of a module, stopped (and its clean stop checked) at the end."""
    with started_broker(backend) as broker:
        yield broker
