"""UpdateFeatures: error codes and records. Codes are those Apache Kafka answers (`tests/kafka`)."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.controller.alter_configs import incremental_alter_configs
from pybroker.controller.create_topics import create_topics
from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.controller.update_features import update_features
from pybroker.metadata import features
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

State = Callable[..., ControllerState]
After = Callable[..., ControllerState]
UPGRADE, SAFE, UNSAFE = 1, 2, 3
METADATA, ELR = "metadata.version", "eligible.leader.replicas.version"
TOPIC, BROKER = 2, 4
E = ErrorCode


def _at(state: ControllerState, after: After, *records: Any) -> ControllerState:
    return after(state, ControllerResult(None, [VersionedRecord(record, 0) for record in records]))


def _level(name: str, level: int) -> m.FeatureLevelRecord:
    return m.FeatureLevelRecord(name=name, feature_level=level)


def _update(state: ControllerState, *wanted: tuple[str, int, int], version: int = 2, **fields: Any) -> Any:
    row = m.UpdateFeaturesRequest.FeatureUpdateKey
    rows = [row(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in wanted]
    return update_features(state, m.UpdateFeaturesRequest(feature_updates=rows, **fields), version)


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
    assert result.response.error_message.startswith(
        "The update failed for all features since the following feature had an error: "
        "Invalid update version 1 for feature group.version. Local controller 1 does not support this feature."
    )
    tried = _update(state, (METADATA, 30, UPGRADE), validate_only=True)
    assert (tried.response.error_code, tried.records) == (E.NONE, [])
    both = _update(state, (METADATA, 30, UPGRADE), ("transaction.version", 0, SAFE))
    assert [row.feature for row in both.response.results] == [METADATA, "transaction.version"]
    assert dict(after(state, both).image.feature_levels) == {METADATA: 30}


def test_the_quorum_stays_as_it_was_set_up(make_state: State) -> None:
    result = _update(make_state(), ("kraft.version", 1, UPGRADE))
    assert (result.response.error_code, result.records) == (E.INVALID_UPDATE_VERSION, [])
    assert _update(make_state(), ("kraft.version", 0, UPGRADE)).response.error_code == E.NONE


@pytest.mark.parametrize("name", sorted({*features.SUPPORTED} - {METADATA, "kraft.version"}))
def test_every_level_that_is_advertised_can_be_finalised_and_taken_back(
    make_state: State, after: After, name: str
) -> None:
    low, high = features.SUPPORTED[name]
    for level in range(low, high + 1):
        state = make_state()
        up = _update(state, (name, level, UPGRADE))
        assert up.response.error_code == E.NONE, up.response.error_message
        state = after(state, up)
        assert state.image.feature_levels.get(name, 0) == level
        down = _update(state, (name, low, SAFE))
        assert down.response.error_code == E.NONE
        assert state.image.metadata_version == after(state, down).image.metadata_version


def test_a_feature_waits_for_the_level_that_it_depends_on(make_state: State, after: After) -> None:
    state = _at(make_state(), after, _level(METADATA, 22))
    refused = _update(state, (ELR, 1, UPGRADE))
    assert (refused.response.error_code, refused.records) == (E.INVALID_UPDATE_VERSION, [])
    assert "depends on metadata.version level 23" in refused.response.error_message
    together = _update(state, (ELR, 1, UPGRADE), (METADATA, 23, UPGRADE))
    assert dict(after(state, together).image.feature_levels) == {METADATA: 23, ELR: 1}


def _min_insync(name: str, value: str | None) -> m.ConfigRecord:
    return m.ConfigRecord(resource_type=BROKER, resource_name=name, name="min.insync.replicas", value=value)


def _alter(state: ControllerState, kind: int, name: str, value: str | None) -> Any:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="min.insync.replicas", config_operation=int(value is None), value=value)
    row = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    result = incremental_alter_configs(state, request(resources=[row]))
    return result, result.response.responses[0]


@pytest.mark.parametrize(("default", "kept"), [(None, "2"), ("3", "3")])
def test_eligible_leaders_come_with_one_number_for_all_brokers(
    make_state: State, after: After, default: str | None, kept: str
) -> None:
    state = make_state(overrides=("min.insync.replicas=2",))
    own = [_min_insync("1", "4"), *([_min_insync("", default)] if default else [])]
    state = _at(state, after, *own)
    tried = _update(state, (ELR, 1, UPGRADE), validate_only=True)
    assert (tried.response.error_code, tried.records) == (E.NONE, [])
    state = after(state, _update(state, (ELR, 1, UPGRADE)))
    assert dict(state.image.config(BROKER, "")) == {"min.insync.replicas": kept}
    assert dict(state.image.config(BROKER, "1")) == {}


def test_min_insync_replicas_with_eligible_leaders(make_state: State, after: After) -> None:
    before = make_state()
    assert _alter(before, BROKER, "1", "2")[1].error_code == E.NONE
    create = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    state = after(before, create_topics(before, m.CreateTopicsRequest(topics=[create]), 7))
    state = after(state, _update(state, (ELR, 1, UPGRADE)))
    topic_id = state.image.topics.by_name["t"].id
    gone = m.PartitionChangeRecord(topic_id=topic_id, partition_id=0, eligible_leader_replicas=[3])
    state = after(state, ControllerResult(None, [VersionedRecord(gone, 2)]))
    for name, value, text in (
        ("1", "2", "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ("", None, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
    ):
        result, row = _alter(state, BROKER, name, value)
        assert (row.error_code, result.records) == (E.INVALID_CONFIG, [])
        assert row.error_message.startswith(text)
    for kind, name in ((BROKER, ""), (TOPIC, "t")):
        result, row = _alter(state, kind, name, "2")
        assert row.error_code == E.NONE
        assert state.image.topics.by_name["t"].partitions[0].eligible_leader_replicas == (3,)
        assert after(state, result).image.topics.by_name["t"].partitions[0].eligible_leader_replicas == ()


def test_what_another_node_does_not_serve_is_not_finalised(make_state: State, after: After) -> None:
    old = m.RegisterBrokerRecord.BrokerFeature(name=METADATA, min_supported_version=7, max_supported_version=29)
    left = m.RegisterBrokerRecord(broker_id=2, broker_epoch=5, rack=None, features=[old])
    state = _at(make_state(), after, _level(METADATA, 25), left)
    refused = _update(state, (METADATA, 30, UPGRADE))
    assert refused.response.error_code == E.INVALID_UPDATE_VERSION
    assert "Broker 2 only supports versions 7-29. Unregister it if it is gone" in refused.response.error_message
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


_RELEASE = (
    ("group.version", 1, UPGRADE),
    ("kraft.version", 1, UPGRADE),
    (ELR, 1, UPGRADE),
    ("share.version", 2, UPGRADE),
    (METADATA, 33, UPGRADE),
    ("streams.version", 1, UPGRADE),
    ("transaction.version", 2, UPGRADE),
)


def _with_voters_of(state: ControllerState, kraft_version: int) -> ControllerState:
    quorum = state.image.quorum.replace(kraft_version=kraft_version)
    return state.replace(image=state.image.replace(quorum=quorum))


def test_a_release_raises_the_features_that_are_served(make_state: State, after: After) -> None:
    state = _at(make_state(), after, _level(METADATA, 25), _level("transaction.version", 2))
    state = _with_voters_of(state, 1)
    result = _update(state, *_RELEASE, version=1)
    assert result.response.error_code == E.NONE
    rows = {row.feature: (row.error_code, row.error_message) for row in result.response.results}
    assert list(rows) == [name for name, _, _ in _RELEASE]
    done = (E.NONE, "NONE")
    # The feature that has its level already is not refused, although it is not served.
    assert {name for name in rows if rows[name] == done} == {METADATA, ELR, "kraft.version", "transaction.version"}
    for name in ("group.version", "share.version", "streams.version"):
        assert rows[name][0] == E.INVALID_UPDATE_VERSION
        assert f"for feature {name}. Local controller 1 does not support this feature." in rows[name][1]
    raised = {METADATA: 33, ELR: 1, "transaction.version": 2}
    assert dict(after(state, result).image.feature_levels) == raised
    tried = _update(state, *_RELEASE, version=1, validate_only=True)
    assert (tried.response.results, tried.records) == (result.response.results, [])


def test_a_response_without_rows_refuses_a_release_and_says_which_command_does_it(make_state: State) -> None:
    result = _update(make_state(), *_RELEASE)
    assert (result.response.error_code, result.records) == (E.INVALID_UPDATE_VERSION, [])
    assert result.response.error_message.endswith(f" upgrade --feature {ELR}=1 --feature {METADATA}=33`")
    lower = _update(make_state(), (METADATA, 33, SAFE), ("group.version", 1, SAFE))
    assert lower.response.error_message.endswith(f" downgrade --feature {METADATA}=33`")


@pytest.mark.parametrize("name", sorted(features.UNSERVED))
def test_an_unserved_feature_spoils_no_other_and_is_refused_alone(make_state: State, after: After, name: str) -> None:
    state = _at(make_state(), after, _level(METADATA, 25))
    alone = _update(state, (name, 1, UPGRADE), version=1)
    assert (alone.response.error_code, alone.response.results) == (E.INVALID_UPDATE_VERSION, [])
    assert "The update failed for all features" in alone.response.error_message
    beside = _update(state, (METADATA, 33, UPGRADE), (name, 1, UPGRADE), version=1)
    assert [row.error_code for row in beside.response.results] == [E.NONE, E.INVALID_UPDATE_VERSION]
    assert dict(after(state, beside).image.feature_levels) == {METADATA: 33}
    # A feature that is served and cannot get its level still spoils all.
    spoilt = _update(state, (METADATA, 34, UPGRADE), (ELR, 1, UPGRADE), (name, 1, UPGRADE), version=1)
    assert (spoilt.response.error_code, spoilt.records) == (E.INVALID_UPDATE_VERSION, [])


def test_a_release_leaves_a_quorum_of_static_voters_as_it_is(make_state: State, after: After) -> None:
    state = _with_voters_of(_at(make_state(), after, _level(METADATA, 25)), 0)
    result = _update(state, *_RELEASE, version=1)
    rows = {row.feature: row.error_code for row in result.response.results}
    assert (rows["kraft.version"], rows[METADATA]) == (E.INVALID_UPDATE_VERSION, E.NONE)
    assert after(state, result).image.metadata_version == 33
