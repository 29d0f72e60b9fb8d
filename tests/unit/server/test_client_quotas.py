"""What a broker does with quotas that are set."""

from __future__ import annotations

import logging

import pytest

from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import MetadataImage, Provenance
from pybroker.protocol import messages as m
from pybroker.server import client_quotas
from pybroker.server.client_quotas import ClientQuotas


def _set(quotas: ClientQuotas, image: MetadataImage, key: str, value: float) -> MetadataImage:
    delta = MetadataDelta(image)
    part = m.ClientQuotaRecord.EntityData(entity_type="ip", entity_name=None)
    delta.replay(m.ClientQuotaRecord(entity=[part], key=key, value=value), 0)
    image = delta.apply(Provenance())
    quotas.publish(delta, image)
    return image


def test_a_quota_that_nobody_is_held_to_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    quotas = ClientQuotas()
    image = empty_image("cluster")
    with caplog.at_level(logging.WARNING, logger=client_quotas.__name__):
        quotas.publish(MetadataDelta(image), image)
        for value in (1.0, 2.0):
            image = _set(quotas, image, "connection_creation_rate", value)
        _set(quotas, image, "request_percentage", 3.0)
    assert [key in line.message for key, line in zip(("connection_", "request_"), caplog.records, strict=True)] == [
        True,
        True,
    ]
