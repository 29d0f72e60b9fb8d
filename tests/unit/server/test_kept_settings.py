"""Settings that an older Kafka took: in the file, in the dynamic settings and in a topic, over a restart."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from daemon_client import Client, config_for, connected, running

from pybroker.config.broker import BrokerConfig
from pybroker.controller.state import ControllerResult
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.daemon import Daemon

TOPIC, BROKER = 2, 4
LEAST = 1 << 20


def _config(tmp_path: Path, **settings: str) -> BrokerConfig:
    return config_for(tmp_path, metadata_log_segment_bytes="1000", **settings)


async def _keep(daemon: Daemon, kind: int, resource: str, name: str, value: str) -> None:
    """Bring a value into the metadata that can no longer be set."""
    record = m.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
    controller: Any = daemon.services.controller
    await controller._controller._run(lambda _: ControllerResult(None, [VersionedRecord(record, 0)]))


def _segments(log_dir: Path) -> int:
    return len(list(log_dir.rglob("t-0/*.log")))


async def _described(client: Client, kind: int, resource: str, name: str) -> str | None:
    row = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=resource, configuration_keys=[name]
    )
    answer = await client.call(m.DescribeConfigsRequest(resources=[row]), 4)
    return str(answer.results[0].configs[0].value)


async def _alter(client: Client, kind: int, resource: str, name: str, value: str) -> ErrorCode:
    request = m.IncrementalAlterConfigsRequest
    setting = request.AlterableConfig(name=name, config_operation=0, value=value)
    row = request.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[setting])
    answer: Any = await client.call(request(resources=[row]), 1)
    return ErrorCode(answer.responses[0].error_code)


def test_they_are_raised_and_the_topic_rolls_at_the_bound(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running(_config(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await _keep(daemon, TOPIC, "t", "segment.bytes", "107370")
            await _keep(daemon, BROKER, "", "log.segment.bytes", "2000")
            await _keep(daemon, BROKER, "1", "log.cleaner.min.compaction.lag.ms", "-1")
        caplog.clear()
        async with running(_config(tmp_path)) as daemon, connected(daemon) as client:
            for _ in range(12):
                await client.produce("t", b"x" * 100_000)
            assert _segments(tmp_path) == 2
            assert await _described(client, TOPIC, "t", "segment.bytes") == str(LEAST)
            assert await _described(client, BROKER, "1", "log.segment.bytes") == str(LEAST)
            assert await _alter(client, TOPIC, "t", "retention.ms", "86400000") == ErrorCode.NONE
            assert await _alter(client, TOPIC, "t", "segment.bytes", "107371") == ErrorCode.INVALID_CONFIG
            assert await _alter(client, BROKER, "", "log.segment.bytes", "2001") == ErrorCode.INVALID_REQUEST
            assert await _alter(client, BROKER, "", "log.retention.ms", "86400000") == ErrorCode.NONE

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    for told in (
        f"topic t: segment.bytes=107370 is raised to {LEAST}",
        f"dynamic default: log.segment.bytes=2000 is raised to {LEAST}",
        "dynamic value: log.cleaner.min.compaction.lag.ms=-1 is raised to 0",
    ):
        assert told in caplog.text
