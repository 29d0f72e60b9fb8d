"""UpdateFeatures (KIP-584, KIP-778, KIP-1022): change which levels of features are finalised. Pure.

A request is done as a whole or not at all. A level is taken when this broker and every node that is registered serves
it. metadata.version goes down only as far as no record differs: what newer records say would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybroker.controller import eligible_leaders
from pybroker.controller.state import ControllerResult, ControllerState, Refusal
from pybroker.metadata import features
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_NO_KINDS_VERSION = 0
#: What Apache Kafka says in the row of a feature that was updated.
_NO_ERROR_TEXT = "NONE"

_Update = m.UpdateFeaturesRequest.FeatureUpdateKey
_Row = m.UpdateFeaturesResponse.UpdatableFeatureResult


def update_features(
    state: ControllerState, request: m.UpdateFeaturesRequest, version: int
) -> ControllerResult[m.UpdateFeaturesResponse]:
    """Finalise the levels of the request; with `validate_only` say whether that could be done."""
    records = []
    wanted = {update.feature: update.max_version_level for update in request.feature_updates}
    for update in request.feature_updates:
        try:
            if _is_change(state, update, _kind(update, version)):
                _check_dependencies(state, update, wanted)
                if update.feature == features.ELIGIBLE_LEADER_REPLICAS_VERSION and update.max_version_level > 0:
                    records += eligible_leaders.one_number(state)
                record = m.FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
                records.append(state.versioned(record))
        except Refusal as refusal:
            text = (
                "The update failed for all features since the following feature had an error: Invalid update version "
                f"{update.max_version_level} for feature {update.feature}. {refusal.message}"
            )
            return ControllerResult(m.UpdateFeaturesResponse(error_code=refusal.code, error_message=text))
    rows = [_Row(feature=update.feature, error_message=_NO_ERROR_TEXT) for update in request.feature_updates]
    response = m.UpdateFeaturesResponse(error_message=None, results=rows)
    return ControllerResult(response, [] if request.validate_only else records)


def _kind(update: _Update, version: int) -> int:
    if version > _NO_KINDS_VERSION:
        return update.upgrade_type
    return _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE


def _is_change(state: ControllerState, update: _Update, kind: int) -> bool:
    """False when the feature has that level already; Refusal when it cannot get it."""
    name, level = update.feature, update.max_version_level
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _refusal(f"The controller does not support the given upgrade type. It is {kind}")
    if level < 0:
        raise _refusal("A feature version cannot be less than 0.")
    obstacle = next(_obstacles(state, name, level), None)
    if obstacle is not None:
        raise _refusal(obstacle)
    current = _current(state, name)
    if level < current and kind == _UPGRADE:
        raise _refusal(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            f"downgrade. It has level {current}"
        )
    if level > current and kind != _UPGRADE:
        raise _refusal(f"Can't downgrade to a newer version. It has level {current}")
    if level != current and name == features.KRAFT_VERSION:
        raise _refusal(f"The quorum of this controller is itself alone, as it was set up with level {current}")
    if level < current and name == features.METADATA_VERSION and features.are_records_changed(level, current):
        raise _refusal(
            "Refusing to perform the requested downgrade because it might delete metadata information. "
            f"Metadata of level {current} may have records that level {level} lacks"
        )
    return level != current


def _check_dependencies(state: ControllerState, update: _Update, wanted: Mapping[str, int]) -> None:
    """Refusal when the feature needs a level of another one that neither the cluster nor the request has."""
    for other, least in features.DEPENDENCIES.get((update.feature, update.max_version_level), {}).items():
        if wanted.get(other, _current(state, other)) < least:
            raise _refusal(
                f"{update.feature} could not be set to {update.max_version_level} because it depends on {other} "
                f"level {least}"
            )


def _current(state: ControllerState, name: str) -> int:
    if name == features.METADATA_VERSION:
        return state.image.metadata_version
    if name == features.KRAFT_VERSION:
        return state.image.quorum.kraft_version
    return state.image.feature_levels.get(name, 0)


def _obstacles(state: ControllerState, name: str, level: int) -> Iterator[str]:
    """Which nodes do not serve that level."""
    if name not in features.SUPPORTED and name not in features.UNSERVED and name not in state.image.feature_levels:
        known = ", ".join(sorted([*features.SUPPORTED, *features.UNSERVED]))
        yield f"Local controller {state.node_id} does not support this feature. There are {known}"
    low, high = features.SUPPORTED.get(name, features.OFF)
    if not low <= level <= high:
        yield f"Local controller {state.node_id} {_served(low, high)}"
    cluster = state.image.cluster
    nodes = [
        (each.id, f"Broker {each.id}", each.features, " Unregister it if it is gone")
        for each in cluster.brokers.values()
    ]
    nodes += [(each.id, f"Controller {each.id}", each.features, "") for each in cluster.controllers.values()]
    for node_id, who, ranges, advice in nodes:
        low, high = {feature: (lowest, highest) for feature, lowest, highest in ranges}.get(name, features.OFF)
        # What this node has registered as an earlier version of itself says nothing.
        if node_id != state.node_id and not low <= level <= high:
            yield f"{who} {_served(low, high)}{advice}"


def _served(low: int, high: int) -> str:
    if (low, high) == features.OFF:
        return "does not support this feature."
    return f"only supports versions {low}-{high}."


def _refusal(text: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_UPDATE_VERSION, text)
