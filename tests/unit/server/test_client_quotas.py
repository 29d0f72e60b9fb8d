"""What a broker does with quotas that are set."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from daemon_client import CLIENT_ID, config_for, connected, running

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import MetadataImage, Provenance
from pybroker.native.broker import ByteRates
from pybroker.native.errors import NativeError
from pybroker.protocol import messages as m
from pybroker.server import client_quotas
from pybroker.server.client_quotas import ClientQuotas

FREE = ByteRates(0.0, 0.0, False, False)


class _Native:
    """Takes note of what the data plane would be told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.error: NativeError | None = None

    def set_client_quotas(self, *quotas: Any) -> None:
        if self.error is not None:
            raise self.error
        self.told.append(quotas)


def _quotas(native: _Native, *overrides: str) -> ClientQuotas:
    config = BrokerConfig.load(None, ["node.id=1", *overrides])
    return ClientQuotas(native, lambda: config)  # type: ignore[arg-type] # all that is used of it


def _set(quotas: ClientQuotas, image: MetadataImage, kind: str, name: str | None, key: str, value: float) -> Any:
    delta = MetadataDelta(image)
    part = m.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
    delta.replay(m.ClientQuotaRecord(entity=[part], key=key, value=value), 0)
    image = delta.apply(Provenance())
    quotas.publish(delta, image)
    return image


def test_a_quota_that_nobody_is_held_to_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    quotas = _quotas(_Native())
    image = empty_image("cluster")
    with caplog.at_level(logging.WARNING, logger=client_quotas.__name__):
        quotas.publish(MetadataDelta(image), image)
        for value in (1.0, 2.0):
            image = _set(quotas, image, "ip", None, "connection_creation_rate", value)
        image = _set(quotas, image, "user", "ann", "request_percentage", 3.0)
        _set(quotas, image, "user", "ann", "producer_byte_rate", 4.0)
    first, second = (line.message for line in caplog.records)
    assert "connection_creation_rate" in first
    assert "request_percentage" in second


def test_the_data_plane_is_told_of_rates() -> None:
    native = _Native()
    quotas = _quotas(native, "quota.window.num=5", "quota.window.size.seconds=2")
    image = empty_image("cluster")
    quotas.publish(MetadataDelta(image), image)
    assert native.told == []
    image = _set(quotas, image, "client-id", "app", "producer_byte_rate", 1000.0)
    image = _set(quotas, image, "user", None, "consumer_byte_rate", 500.0)
    shared = ByteRates(0.0, 500.0, False, True)
    assert native.told == [
        ({"": FREE, "app": ByteRates(1000.0, 0.0, False, False)}, FREE, 5, 2000),
        ({"": shared, "app": ByteRates(1000.0, 500.0, False, True)}, shared, 5, 2000),
    ]


def test_a_window_with_more_samples_than_are_kept() -> None:
    native = _Native()
    _set(_quotas(native, "quota.window.num=5000"), empty_image("c"), "client-id", None, "producer_byte_rate", 1.0)
    assert native.told[0][2:] == (1000, 1000)


def test_quotas_that_cannot_be_set_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    native = _Native()
    native.error = NativeError(12, "no memory")
    with caplog.at_level(logging.ERROR, logger=client_quotas.__name__):
        _set(_quotas(native), empty_image("c"), "client-id", None, "producer_byte_rate", 1.0)
    assert "no memory" in caplog.text


def test_a_client_of_before_kip_599_is_held_back_by_its_connection(tmp_path: Path) -> None:
    """It is not refused, and may know nothing of throttle times."""
    part, op = m.AlterClientQuotasRequest.EntityData, m.AlterClientQuotasRequest.OpData
    entry = m.AlterClientQuotasRequest.EntryData(
        entity=[part(entity_type="client-id", entity_name=CLIENT_ID)],
        ops=[op(key="controller_mutation_rate", value=0.001, remove=False)],
    )
    topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=20, replication_factor=1)
    nothing = m.MetadataRequest(topics=[])

    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client, connected(daemon) as other:
            (row,) = (await other.call(m.AlterClientQuotasRequest(entries=[entry]), 1)).entries
            assert row.error_code == 0
            answer = await client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
            assert (answer.topics[0].error_code, answer.throttle_time_ms > 3_600_000) == (0, True)
            await client.send(nothing.API_KEY, 9, nothing.encode(9))
            for _ in range(20):
                await other.call(nothing, 9)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.reader.read(1), 0.1)

    asyncio.run(run())
