"""Changes of brokers' dynamic configurations, looked at before they are forwarded: the controllers store any. Pure.

As in Apache Kafka a broker answers for its own settings and for the default of all brokers; clients send a change of
one broker's settings to that broker.
"""

from __future__ import annotations

from typing import Any

from pybroker.config.alter import ConfigAlteration, InvalidAlteration, alter_broker, replace_broker
from pybroker.config.broker import BrokerConfig
from pybroker.metadata.image import RESOURCE_BROKER, MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

_KINDS = (m.IncrementalAlterConfigsRequest, m.AlterConfigsRequest)

Refusals = dict[int, InvalidAlteration]
"""By the place of the resource in the request."""


def refusals(request: Any, image: MetadataImage, config: BrokerConfig) -> Refusals:
    """The resources of a request that this broker refuses; none of a request that changes no configurations."""
    found: Refusals = {}
    resources: list[Any] = request.resources if isinstance(request, _KINDS) else []
    for place, resource in enumerate(resources):
        if resource.resource_type == RESOURCE_BROKER:
            try:
                _check(request, resource, image, config)
            except InvalidAlteration as error:
                found[place] = error
    return found


def _check(request: Any, resource: Any, image: MetadataImage, config: BrokerConfig) -> None:
    name = resource.resource_name
    if name not in ("", str(config.node_id)):
        raise InvalidAlteration(
            ErrorCode.INVALID_REQUEST, f"this is broker {config.node_id}, not {name!r}; an empty name means all brokers"
        )
    current = image.config(RESOURCE_BROKER, name)
    if isinstance(request, m.IncrementalAlterConfigsRequest):
        edits = [ConfigAlteration(each.name, each.config_operation, each.value) for each in resource.configs]
        alter_broker(current, edits, config, per_broker=bool(name))
    else:
        values = {each.name: each.value for each in resource.configs}
        replace_broker(current, values, config, per_broker=bool(name))


def without(request: Any, refused: Refusals) -> Any:
    """The request without the resources that are refused."""
    kept = [each for place, each in enumerate(request.resources) if place not in refused]
    return type(request)(resources=kept, validate_only=request.validate_only)


def merged(request: Any, refused: Refusals, response: Any) -> Any:
    """The response to the whole request, from that to what was forwarded."""
    kind = type(response).AlterConfigsResourceResponse
    response.responses += [
        kind(
            error_code=error.error_code,
            error_message=str(error),
            resource_type=request.resources[place].resource_type,
            resource_name=request.resources[place].resource_name,
        )
        for place, error in refused.items()
    ]
    return response
