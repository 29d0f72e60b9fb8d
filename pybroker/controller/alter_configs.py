"""AlterConfigs and IncrementalAlterConfigs (KIP-133, KIP-339) of topics, of this broker, and of all brokers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pybroker.config.alter import (
    Changes,
    ConfigAlteration,
    InvalidAlteration,
    alter_broker,
    alter_topic,
    replace_broker,
    replace_topic,
)
from pybroker.config.broker import BrokerConfig
from pybroker.controller import eligible_leaders
from pybroker.controller.state import ControllerResult, ControllerState, Refusal, invalid_request, unknown_topic
from pybroker.controller.topic_names import check_name
from pybroker.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

# Makes a resource's changes: (state, resource, current overrides).
_Edit = Callable[[ControllerState, Any, Mapping[str, str]], Changes]


def incremental_alter_configs(
    state: ControllerState, request: m.IncrementalAlterConfigsRequest
) -> ControllerResult[m.IncrementalAlterConfigsResponse]:
    """Change single keys; a row per resource, each all or nothing."""
    row = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    rows, records = _alter(state, request.resources, _edit_incrementally, row)
    response = m.IncrementalAlterConfigsResponse(responses=rows)
    return ControllerResult(response, [] if request.validate_only else records)


def alter_configs(state: ControllerState, request: m.AlterConfigsRequest) -> ControllerResult[m.AlterConfigsResponse]:
    """Replace all overrides of each resource; a row per resource, each all or nothing."""
    row = m.AlterConfigsResponse.AlterConfigsResourceResponse
    rows, records = _alter(state, request.resources, _replace, row)
    return ControllerResult(m.AlterConfigsResponse(responses=rows), [] if request.validate_only else records)


def _alter(
    state: ControllerState, resources: list[Any], edit: _Edit, row: Callable[..., Any]
) -> tuple[list[Any], list[VersionedRecord]]:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    rows: list[Any] = []
    records: list[VersionedRecord] = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        code, message = ErrorCode.NONE, None
        try:
            if counts[kind, name] > 1:
                raise invalid_request("Each resource must appear at most once. Send the others in another request")
            _check_resource(state, kind, name)
            current = state.image.config(kind, name)
            changes = edit(state, resource, current)
            eligible_leaders.check_alteration(state.image, kind, name, changes)
            if kind == RESOURCE_BROKER:
                # The alterations behind it in the request are checked with it.
                state = state.replace(config=_with_changes(state.config, name, current, changes))
            records += [
                VersionedRecord(m.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value), 0)
                for key, value in changes.items()
            ]
            records += eligible_leaders.forgetting(state.image, kind, name, changes)
        except Refusal as refusal:
            code, message = refusal.code, refusal.message
        except InvalidAlteration as error:
            code, message = ErrorCode(error.error_code), str(error)
        rows.append(row(error_code=code, error_message=message, resource_type=kind, resource_name=name))
    return rows, records


def _with_changes(config: BrokerConfig, name: str, current: Mapping[str, str], changes: Changes) -> BrokerConfig:
    wanted = {key: text for key, text in {**current, **changes}.items() if text is not None}
    return config.with_dynamic(*((config.dynamic_default, wanted) if name else (wanted, config.dynamic_broker)))


def _check_resource(state: ControllerState, kind: int, name: str) -> None:
    if kind == RESOURCE_TOPIC:
        if not name:
            raise invalid_request("Default topic resources are not allowed. Name a topic")
        check_name(name)
        if name not in state.image.topics.by_name:
            raise unknown_topic(name)
    elif kind == RESOURCE_BROKER:
        if name and name != str(state.node_id):
            raise invalid_request(
                f"Unexpected broker id, expected {state.node_id}, but received {name}. An empty name means all brokers"
            )
    else:
        raise invalid_request(
            f"Unknown resource type {kind} for settings that can be altered here; "
            f"accepted: {RESOURCE_TOPIC} (topic), {RESOURCE_BROKER} (broker)"
        )


def _edit_incrementally(state: ControllerState, resource: Any, current: Mapping[str, str]) -> Changes:
    alterations = [ConfigAlteration(each.name, each.config_operation, each.value) for each in resource.configs]
    if resource.resource_type == RESOURCE_TOPIC:
        return alter_topic(current, alterations, state.config)
    return alter_broker(current, alterations, state.config, per_broker=bool(resource.resource_name))


def _replace(state: ControllerState, resource: Any, current: Mapping[str, str]) -> Changes:
    configs = {each.name: each.value for each in resource.configs}
    if len(configs) < len(resource.configs):
        raise invalid_request("Error due to duplicate config keys. A setting can be given only once for a resource")
    if resource.resource_type == RESOURCE_TOPIC:
        return replace_topic(current, configs, state.config)
    return replace_broker(current, configs, state.config, per_broker=bool(resource.resource_name))
