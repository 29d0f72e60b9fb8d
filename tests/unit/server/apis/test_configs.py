"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_services import NODE_ID, Services

from pybroker.config.describe import ConfigSource
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


async def _describe(services: Services, kind: int, name: str, keys: list[str] | None = None, **options: bool) -> Any:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = m.DescribeConfigsRequest(resources=[resource], **options)
    return (await services.call("describe_configs", request, 4)).results[0]


async def _set(services: Services, kind: int, name: str, key: str, value: str | None) -> int:
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    response = await services.call("incremental_alter_configs", request, 1)
    return int(response.responses[0].error_code)


def test_a_topic_setting_wins_over_those_of_brokers() -> None:
    async def run() -> None:
        services = await Services(overrides=["message.max.bytes=5000"]).start()
        await services.create("t")
        waited = services.replicas.settle_count
        assert await _set(services, BROKER, "", "message.max.bytes", "6000") == 0
        assert await _set(services, BROKER, str(NODE_ID), "message.max.bytes", "7000") == 0
        (entry,) = (await _describe(services, TOPIC, "t", ["max.message.bytes"])).configs
        assert (entry.value, entry.config_source) == ("7000", ConfigSource.DYNAMIC_BROKER)
        assert await _set(services, TOPIC, "t", "max.message.bytes", "8000") == 0
        assert services.replicas.settle_count == waited + 3, "each answer waits until it is in effect here"
        (entry,) = (await _describe(services, TOPIC, "t", ["max.message.bytes"], include_synonyms=True)).configs
        assert [(each.value, each.source) for each in entry.synonyms] == [
            ("8000", ConfigSource.TOPIC),
            ("7000", ConfigSource.DYNAMIC_BROKER),
            ("6000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
            ("5000", ConfigSource.STATIC_BROKER),
            ("1048588", ConfigSource.DEFAULT),
        ]
        assert (entry.documentation, entry.is_sensitive, entry.read_only) == (None, False, False)
        (entry,) = (await _describe(services, TOPIC, "t", ["max.message.bytes"], include_documentation=True)).configs
        assert entry.synonyms == []
        assert entry.documentation

    asyncio.run(run())


def test_replacing_drops_what_is_not_named() -> None:
    async def run() -> None:
        services = await Services().start()
        await services.create("t", retention_ms="1000", segment_ms="60000")
        config = m.AlterConfigsRequest.AlterableConfig(name="retention.ms", value="2000")
        resource = m.AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
        response = await services.call("alter_configs", m.AlterConfigsRequest(resources=[resource]), 2)
        assert response.responses[0].error_code == 0
        assert services.metadata.image.topic_config("t") == {"retention.ms": "2000"}

    asyncio.run(run())


def test_secrets_are_never_shown() -> None:
    async def run() -> None:
        services = await Services(overrides=["ssl.key.password=hunter2", "no.such.key=hunter2"]).start()
        result = await _describe(services, BROKER, str(NODE_ID), include_synonyms=True)
        assert "hunter2" not in repr(result)
        hidden = {entry.name: entry for entry in result.configs if entry.is_sensitive}
        assert {"ssl.key.password", "no.such.key"} <= set(hidden)
        assert all(entry.value is None for entry in hidden.values())

    asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, str(NODE_ID), ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_here(kind: int, name: str, error: ErrorCode) -> None:
    async def run() -> None:
        services = await Services().start()
        described = await _describe(services, kind, name)
        assert (described.error_code, described.configs) == (error, [])
        assert described.error_message
        assert await _set(services, kind, name, "retention.ms", "1") == error

    asyncio.run(run())


def test_resources_are_listed() -> None:
    async def run() -> None:
        setting = m.ConfigRecord(resource_type=METRICS, resource_name="client-metrics", name="interval.ms", value="5")
        services = await Services((setting, 0)).start()
        await services.create("t")

        async def listed(version: int, *kinds: int) -> list[tuple[int, str]]:
            request = m.ListConfigResourcesRequest(resource_types=list(kinds))
            response = await services.call("list_config_resources", request, version)
            assert response.error_code == 0
            return sorted((each.resource_type, each.resource_name) for each in response.config_resources)

        everything = [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "client-metrics")]
        assert await listed(1) == everything
        assert await listed(1, TOPIC, GROUP) == [(TOPIC, "t")]
        assert await listed(0) == [(METRICS, "client-metrics")]
        refused = await services.call("list_config_resources", m.ListConfigResourcesRequest(resource_types=[5]), 1)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION

    asyncio.run(run())
