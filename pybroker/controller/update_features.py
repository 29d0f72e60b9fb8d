"""UpdateFeatures (KIP-584, KIP-778, KIP-1022): change which levels of features are finalised. Pure.

A request is done as a whole or not at all. A level is taken when this broker and every registered node serve it. The
level of metadata.version goes down only as far as no record differs: the content of newer records would be lost.

A release names levels of all of Apache Kafka's features, also of those that pybroker does not serve yet. While the
response has a row for each feature, these features are refused in their rows, and the others still get their levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pybroker.controller import eligible_leaders
from pybroker.controller.state import ControllerResult, ControllerState, Refusal
from pybroker.metadata import features
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_NO_KINDS_VERSION = 0
#: The last version whose response has a row for each feature.
LAST_VERSION_WITH_ROWS = 1
_TOOL = "kafka-features.sh --bootstrap-server HOST:PORT"
#: The text of Apache Kafka in the row of a feature that was updated.
_NO_ERROR_TEXT = "NONE"

_Update = m.UpdateFeaturesRequest.FeatureUpdateKey
_Row = m.UpdateFeaturesResponse.UpdatableFeatureResult


def update_features(
    state: ControllerState, request: m.UpdateFeaturesRequest, version: int
) -> ControllerResult[m.UpdateFeaturesResponse]:
    """Finalise the levels of the request; with `validate_only` say whether that could be done."""
    updates = request.feature_updates
    refused = {} if version > LAST_VERSION_WITH_ROWS else _refused_alone(state, updates, version)
    if len(refused) == len(updates):
        refused = {}
    records = []
    wanted = {update.feature: update.max_version_level for update in updates if update.feature not in refused}
    for update in updates:
        if update.feature in refused:
            continue
        try:
            records += _records(state, update, wanted, version)
        except Refusal as refusal:
            text = (
                "The update failed for all features since the following feature had an error: "
                f"{_told(update, refusal)}{_advice(update, updates)}"
            )
            return ControllerResult(m.UpdateFeaturesResponse(error_code=refusal.code, error_message=text))
    response = m.UpdateFeaturesResponse(error_message=None, results=[_row(update, refused) for update in updates])
    return ControllerResult(response, [] if request.validate_only else records)


def _refused_alone(state: ControllerState, updates: Sequence[_Update], version: int) -> dict[str, Refusal]:
    """The refusals, by feature, that leave the other features of the request alone: pybroker does not serve the
    feature, or cannot change its level."""
    refused = {}
    for update in updates:
        if update.feature in (*features.UNSERVED, features.KRAFT_VERSION):
            try:
                _is_change(state, update, _kind(update, version))
            except Refusal as refusal:
                refused[update.feature] = refusal
    return refused


def _records(state: ControllerState, update: _Update, wanted: Mapping[str, int], version: int) -> list[VersionedRecord]:
    """The records that finalise the level of one feature; Refusal when it cannot get it."""
    if not _is_change(state, update, _kind(update, version)):
        return []
    _check_dependencies(state, update, wanted)
    records = []
    if update.feature == features.ELIGIBLE_LEADER_REPLICAS_VERSION and update.max_version_level > 0:
        records += eligible_leaders.one_number(state)
    record = m.FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
    return [*records, state.versioned(record)]


def _row(update: _Update, refused: Mapping[str, Refusal]) -> _Row:
    refusal = refused.get(update.feature)
    if refusal is None:
        return _Row(feature=update.feature, error_message=_NO_ERROR_TEXT)
    text = f"{_told(update, refusal)} The other features of the request are not affected"
    return _Row(feature=update.feature, error_code=refusal.code, error_message=text)


def _told(update: _Update, refusal: Refusal) -> str:
    return f"Invalid update version {update.max_version_level} for feature {update.feature}. {refusal.message}"


def _advice(update: _Update, updates: Sequence[_Update]) -> str:
    """The command for the features of a request that are served, if `update` is of one that is not."""
    served = [each for each in updates if each.feature in features.SUPPORTED and each.feature != features.KRAFT_VERSION]
    if update.feature not in features.UNSERVED or not served:
        return ""
    words = " ".join(f"--feature {each.feature}={each.max_version_level}" for each in served)
    direction = "upgrade" if update.upgrade_type == _UPGRADE else "downgrade"
    return f" Name the features that are served: `{_TOOL} {direction} {words}`"


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
    current = _current(state, name)
    if name in features.UNSERVED and level == current:
        return False
    obstacle = next(_obstacles(state, name, level), None)
    if obstacle is not None:
        raise _refusal(obstacle)
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
        # Registrations of this node by an earlier version of itself tell nothing.
        if node_id != state.node_id and not low <= level <= high:
            yield f"{who} {_served(low, high)}{advice}"


def _served(low: int, high: int) -> str:
    if (low, high) == features.OFF:
        return "does not support this feature."
    return f"only supports versions {low}-{high}."


def _refusal(text: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_UPDATE_VERSION, text)
