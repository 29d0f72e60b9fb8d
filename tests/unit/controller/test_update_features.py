"""UpdateFeatures: error codes and records. Codes are those Apache Kafka 4.3.0 answers (`tests/kafka`)."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.controller.update_features import update_features
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

State = Callable[..., ControllerState]
After = Callable[..., ControllerState]
UPGRADE, SAFE, UNSAFE = 1, 2, 3
METADATA = "metadata.version"
E = ErrorCode


def _at(state: ControllerState, after: After, *records: Any) -> ControllerState:
    return after(state, ControllerResult(None, [VersionedRecord(record, 0) for record in records]))


def _level(name: str, level: int) -> m.FeatureLevelRecord:
    return m.FeatureLevelRecord(name=name, feature_level=level)


def _update(state: ControllerState, *wanted: tuple[str, int, int], **fields: Any) -> Any:
    row = m.UpdateFeaturesRequest.FeatureUpdateKey
    rows = [row(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in wanted]
    return update_features(state, m.UpdateFeaturesRequest(feature_updates=rows, **fields), 2)


def test_a_level_goes_up_and_down_where_no_record_differs(make_state: State, after: After) -> None:
    state = _at(make_state(), after, _level(METADATA, 26))
    up = _update(state, (METADATA, 30, UPGRADE))
    assert (up.response.error_code, after(state, up).image.metadata_version) == (E.NONE, 30)
    for kind in (SAFE, UNSAFE):
        down = _update(state, (METADATA, 23, kind))
        assert (down.response.error_code, after(state, down).image.metadata_version) == (E.NONE, 23)
        beyond = _update(state, (METADATA, 22, kind))
        assert (beyond.response.error_code, beyond.records) == (E.INVALID_UPDATE_VERSION, [])


def test_all_of_a_request_or_nothing(make_state: State, after: After) -> None:
    state = _at(make_state(), after, _level(METADATA, 29), _level("transaction.version", 2))
    result = _update(state, (METADATA, 30, UPGRADE), ("group.version", 1, UPGRADE))
    assert (result.response.error_code, result.response.results, result.records) == (E.INVALID_UPDATE_VERSION, [], [])
    assert "nothing was changed: group.version cannot have level 1" in result.response.error_message
    tried = _update(state, (METADATA, 30, UPGRADE), validate_only=True)
    assert (tried.response.error_code, tried.records) == (E.NONE, [])
    both = _update(state, (METADATA, 30, UPGRADE), ("transaction.version", 0, SAFE))
    assert [row.feature for row in both.response.results] == [METADATA, "transaction.version"]
    assert dict(after(state, both).image.feature_levels) == {METADATA: 30}


@pytest.mark.parametrize("name", ["kraft.version", "eligible.leader.replicas.version"])
def test_what_this_controller_does_not_do_is_not_begun(make_state: State, name: str) -> None:
    result = _update(make_state(), (name, 1, UPGRADE))
    assert (result.response.error_code, result.records) == (E.INVALID_UPDATE_VERSION, [])
    assert _update(make_state(), (name, 0, UPGRADE)).response.error_code == E.NONE


def test_what_another_node_does_not_serve_is_not_finalised(make_state: State, after: After) -> None:
    old = m.RegisterBrokerRecord.BrokerFeature(name=METADATA, min_supported_version=7, max_supported_version=29)
    left = m.RegisterBrokerRecord(broker_id=2, broker_epoch=5, rack=None, features=[old])
    state = _at(make_state(), after, _level(METADATA, 25), left)
    refused = _update(state, (METADATA, 30, UPGRADE))
    assert refused.response.error_code == E.INVALID_UPDATE_VERSION
    assert "broker 2, to be unregistered if it is gone, serves levels 7 to 29" in refused.response.error_message
    assert _update(state, (METADATA, 29, UPGRADE)).response.error_code == E.NONE
    gone = _at(state, after, m.UnregisterBrokerRecord(broker_id=2, broker_epoch=5))
    assert _update(gone, (METADATA, 30, UPGRADE)).response.error_code == E.NONE


def test_this_node_is_not_held_to_what_it_was(make_state: State, after: After) -> None:
    old = m.RegisterControllerRecord.ControllerFeature(name=METADATA, min_supported_version=7, max_supported_version=29)
    own = m.RegisterControllerRecord(controller_id=1, features=[old])
    state = _at(make_state(), after, _level(METADATA, 29), own)
    assert _update(state, (METADATA, 30, UPGRADE)).response.error_code == E.NONE
    other = _at(state, after, m.RegisterControllerRecord(controller_id=3, features=[old]))
    assert _update(other, (METADATA, 30, UPGRADE)).response.error_code == E.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("is_allowed", [True, False])
def test_version_0_says_downgrade_by_a_flag(make_state: State, after: After, is_allowed: bool) -> None:
    state = _at(make_state(), after, _level(METADATA, 26))
    row = m.UpdateFeaturesRequest.FeatureUpdateKey(feature=METADATA, max_version_level=25, allow_downgrade=is_allowed)
    result = update_features(state, m.UpdateFeaturesRequest(feature_updates=[row]), 0)
    assert (result.response.error_code == E.NONE) == is_allowed == bool(result.records)
