"""Settings that change while the broker runs reach the partitions: a whole broker in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from daemon_client import Client, config_for, connected, running

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
LARGE = bytes(3000)


async def alter(client: Client, kind: int, name: str, key: str, value: str | None) -> None:
    """Set a key, or drop it (None)."""
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(
        name=key, config_operation=DELETE if value is None else SET, value=value
    )
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    response = await client.call(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0, response.responses[0].error_message


async def described(client: Client, kind: int, name: str, key: str) -> tuple[Any, Any]:
    """(value, source)."""
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    (entry,) = (await client.call(m.DescribeConfigsRequest(resources=[resource]), 4)).results[0].configs
    return entry.value, entry.config_source


def test_the_next_produce_meets_the_new_limits(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await client.make_topic("other")

            async def errors() -> tuple[int, int]:
                return (await client.produce("t", LARGE)).error_code, (await client.produce("other", LARGE)).error_code

            too_large = ErrorCode.MESSAGE_TOO_LARGE
            await alter(client, TOPIC, "t", "max.message.bytes", "2000")
            assert await errors() == (too_large, 0)
            await alter(client, BROKER, "", "message.max.bytes", "1000")
            assert await errors() == (too_large, too_large)
            await alter(client, BROKER, str(daemon.config.node_id), "message.max.bytes", "4000")
            assert await errors() == (too_large, 0), "this broker's own value wins"
            await alter(client, TOPIC, "t", "max.message.bytes", None)
            assert await errors() == (0, 0)

    asyncio.run(run())


def test_the_next_record_gets_the_new_kind_of_timestamp(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert (await client.produce("t", b"1")).log_append_time_ms == -1
            await alter(client, TOPIC, "t", "message.timestamp.type", "LogAppendTime")
            assert (await client.produce("t", b"2")).log_append_time_ms > 1_600_000_000_000

    asyncio.run(run())


def test_retention_follows_the_topic(tmp_path: Path) -> None:
    often = {"log_retention_check_interval_ms": "20", "log_initial_task_delay_ms": "0"}

    async def run() -> None:
        async with running(config_for(tmp_path, **often)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            now_ms = daemon.clock.wall_ms()
            assert (await client.produce("t", b"1", b"2", timestamp_ms=now_ms)).error_code == 0
            assert (await client.offset("t", -2)).offset == 0
            await alter(client, TOPIC, "t", "retention.ms", "1")
            for _ in range(3000):
                if (await client.offset("t", -2)).offset == 2:
                    break
                await asyncio.sleep(0.02)
            assert (await client.offset("t", -2)).offset == 2, "what is older than retention.ms is deleted"
            assert (await client.offset("t", -1)).offset == 2

    asyncio.run(run())


def test_the_bound_on_connections_follows(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await alter(client, BROKER, "", "max.connections", "1")
            async with connected(daemon) as refused:
                assert await refused.is_closed()
            await alter(client, BROKER, str(daemon.config.node_id), "max.connections", "2")
            async with connected(daemon) as second:
                await second.make_topic("t")
        async with (
            running(config_for(tmp_path)) as daemon,
            connected(daemon),
            connected(daemon),
            connected(daemon) as refused,
        ):
            assert await refused.is_closed(), "it outlives a restart"

    asyncio.run(run())


def test_settings_outlive_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            await alter(client, TOPIC, "t", "max.message.bytes", "2000")
            await alter(client, BROKER, "", "log.retention.ms", "60000")

    async def second() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            assert await described(client, TOPIC, "t", "max.message.bytes") == ("2000", 1)
            assert await described(client, TOPIC, "t", "retention.ms") == ("60000", 3)
            assert (await client.produce("t", LARGE)).error_code == ErrorCode.MESSAGE_TOO_LARGE

    asyncio.run(first())
    asyncio.run(second())


@pytest.mark.parametrize("name", ["1", ""])
def test_a_restart_goes_on_with_the_number_that_was_reached_in_steps(tmp_path: Path, name: str) -> None:
    """KAFKA-20890: Apache Kafka 4.4.0 goes on with the static number, and refuses the next step and the present one."""
    config = config_for(tmp_path, num_io_threads="1")

    async def first() -> None:
        async with running(config) as daemon, connected(daemon) as client:
            for number in ("2", "4"):
                await alter(client, BROKER, name, "num.io.threads", number)
            assert daemon.services.config.get_int("num.io.threads") == 4

    async def second() -> None:
        async with running(config) as daemon, connected(daemon) as client:
            assert daemon.services.config.get_int("num.io.threads") == 4
            assert await described(client, BROKER, "1", "num.io.threads") == ("4", 2 if name else 3)
            for number in ("4", "8"):
                await alter(client, BROKER, name, "num.io.threads", number)

    asyncio.run(first())
    asyncio.run(second())


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_no_bytes_at_all_for_throttled_replicas_is_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            told: list[int] = []
            monkeypatch.setattr(daemon.native, f"limit_{side}_replication", told.append)
            for rate in ("0", "1000", None):
                await alter(client, BROKER, str(daemon.config.node_id), f"{side}.replication.throttled.rate", rate)
            assert told == [1, 1000, 0], "for the data plane 0 is none"

    asyncio.run(run())
