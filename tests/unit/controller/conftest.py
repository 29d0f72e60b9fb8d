"""Shared: a controller's state to call operations with, and a running controller."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.controller.state import ControllerState
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.metadata.image import MetadataImage, Provenance
from pybroker.protocol import messages as m

sys.path.insert(0, str(Path(__file__).parent))

MakeState = Callable[..., ControllerState]


def _replayed(image: MetadataImage, records: list[Any]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record, version in records:
        delta.replay(record, version)
    return delta.apply(Provenance(image.provenance.end_offset + len(records), 1, 0))


@pytest.fixture
def make_state() -> MakeState:
    """make_state(brokers=1, directories=1, overrides=()) -> state with live brokers, at the newest metadata.version."""

    def make(brokers: int = 1, directories: int = 1, overrides: tuple[str, ...] = ()) -> ControllerState:
        records: list[Any] = [(m.FeatureLevelRecord(name="metadata.version", feature_level=MAX_METADATA_VERSION), 0)]
        for number in range(1, brokers + 1):
            ids = [bytes([number, index]) * 8 for index in range(directories)]
            broker = m.RegisterBrokerRecord(
                broker_id=number, broker_epoch=number, rack=None, fenced=False, log_dirs=ids
            )
            records.append((broker, 4))
        image = _replayed(empty_image("cluster"), records)
        config = BrokerConfig.load(None, ["node.id=1", *overrides])
        return ControllerState(image, config, 1, image.provenance.end_offset)

    return make


@pytest.fixture
def after() -> Callable[..., ControllerState]:
    """after(state, result) -> the state once the result's records are replayed."""

    def apply(state: ControllerState, result: Any) -> ControllerState:
        image = _replayed(state.image, result.records)
        return ControllerState(image, state.config, state.node_id, image.provenance.end_offset)

    return apply
