"""A broker with few file descriptors refuses partitions and says why; what has no room at the start is served later."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon_client import config_for, connected, running

from pybroker.native.bindings import lib
from pybroker.native.descriptors import log_descriptors
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.replication import log_repair
from tests.harness.waiting import until_async

SetLimit = Callable[[int], None]
FEW, ENOUGH = 40, 4096


@pytest.fixture
def set_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetLimit]:
    """Let RLIMIT_NOFILE seem to be that."""
    yield lambda limit: monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    lib.pb_process_limit_descriptors(0, 0, 0)


def test_a_topic_without_descriptors_is_refused_and_clients_connect(tmp_path: Path, set_limit: SetLimit) -> None:
    async def run() -> None:
        set_limit(FEW)
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            room = log_descriptors()
            assert room is not None
            topics = [
                m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
                for name, count in (("t", room.log_count), ("u", 1))
            ]
            response = await client.call(m.CreateTopicsRequest(topics=topics), 7)
            assert [each.error_code for each in response.topics] == [0, ErrorCode.POLICY_VIOLATION]
            assert "LimitNOFILE" in response.topics[1].error_message
            assert len(daemon.logs.logs) == room.log_count
            async with connected(daemon) as other:
                assert (await other.produce("t", b"x")).error_code == 0

    asyncio.run(run())


def test_partitions_without_descriptors_at_the_start_are_served_when_there_are_some(
    tmp_path: Path, set_limit: SetLimit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_repair, "REPAIR_INTERVAL_S", 0.1)

    async def run() -> None:
        set_limit(ENOUGH)
        count = 60
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=count, replication_factor=1)
            assert (await client.call(m.CreateTopicsRequest(topics=[topic]), 7)).topics[0].error_code == 0
            assert (await client.produce("t", b"first")).error_code == 0
        set_limit(FEW)
        caplog.set_level(logging.ERROR)
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            room = log_descriptors()
            assert room is not None
            assert len(daemon.logs.logs) == room.log_count < count
            told = [each.getMessage() for each in caplog.records if "no file descriptor is left" in each.getMessage()]
            assert len(told) == count - room.log_count
            assert all("LimitNOFILE" in each for each in told)
            set_limit(ENOUGH)
            await until_async(lambda: len(daemon.logs.logs) == count)
            assert (await client.offset("t", -1)).offset == 1

    asyncio.run(run())
