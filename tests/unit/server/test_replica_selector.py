"""Which racks the data plane knows of."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import MetadataImage, Provenance
from pybroker.native.errors import NativeError
from pybroker.protocol import messages as m
from pybroker.server.replica_selector import RACK_AWARE, RackSelector


class Native:
    def __init__(self) -> None:
        self.told: list[Mapping[int, str]] = []
        self.failure: NativeError | None = None

    def set_racks(self, racks: Mapping[int, str]) -> None:
        if self.failure is not None:
            raise self.failure
        self.told.append(racks)


def cluster(*brokers: m.RegisterBrokerRecord) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(empty_image("cluster"))
    for each in brokers:
        delta.replay(each, 3)
    return delta, delta.apply(Provenance())


def broker(broker_id: int, rack: str | None, **others: Any) -> m.RegisterBrokerRecord:
    return m.RegisterBrokerRecord(broker_id=broker_id, rack=rack, **({"fenced": False} | others))


BROKERS = cluster(
    broker(1, "a"),
    broker(2, "b"),
    broker(3, None),
    broker(4, "a", fenced=True),
    broker(5, "a", in_controlled_shutdown=True),
)


def selector(native: Any, *settings: str) -> RackSelector:
    config = BrokerConfig.load(None, settings)
    return RackSelector(native, lambda: config)


def test_brokers_that_serve_have_their_racks_told_once() -> None:
    native = Native()
    made = selector(native, f"replica.selector.class={RACK_AWARE}")
    made.publish(*BROKERS)
    made.publish(*BROKERS)
    made.publish(*cluster(broker(1, "a")))
    assert native.told == [{1: "a", 2: "b"}, {1: "a"}]


@pytest.mark.parametrize("settings", [(), ("replica.selector.class=org.apache.kafka.common.replica.LeaderSelector",)])
def test_without_the_setting_nobody_is_sent_anywhere(settings: tuple[str, ...]) -> None:
    native = Native()
    selector(native, *settings).publish(*BROKERS)
    assert native.told == []


def test_what_failed_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    native = Native()
    made = selector(native, f"replica.selector.class={RACK_AWARE}")
    native.failure = NativeError(-errno.ENOMEM)
    made.publish(*BROKERS)
    native.failure = None
    made.publish(*BROKERS)
    assert native.told == [{1: "a", 2: "b"}]
    assert "cannot be told which replica is near" in caplog.text
