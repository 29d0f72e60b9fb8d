"""DescribeConfigs (32): the settings of topics and of this broker, and where they come from (KIP-133, KIP-226)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pybroker.config.describe import DescribedConfig, describe_broker, describe_default_broker, describe_topic
from pybroker.controller.state import Refusal, invalid_request, unknown_topic
from pybroker.controller.topic_names import check_name
from pybroker.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from pybroker.protocol import messages as m
from pybroker.protocol.runtime import fitting
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import SteadyDict, drop, in_slices

#: Resources that Kafka has and this broker does not: broker loggers, client metrics, groups.
_UNSERVED: Mapping[int, str] = {8: "broker loggers", 16: "client metrics", 32: "groups"}

_Result = m.DescribeConfigsResponse.DescribeConfigsResult
_Config = m.DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = m.DescribeConfigsResponse.DescribeConfigsSynonym


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DescribeConfigsRequest
) -> m.DescribeConfigsResponse:
    known = {RESOURCE_TOPIC, RESOURCE_BROKER, *_UNSERVED}
    unknown = [each.resource_type async for each in in_slices(request.resources) if each.resource_type not in known]
    # As in Kafka, a type that nobody knows fails the whole request.
    refusal = invalid_request(f"resource type {unknown[0]} is unknown") if unknown else None
    # An answer is thousands of times as large as the question, so what is repeated is answered once.
    asked: SteadyDict[tuple[int, str, frozenset[str]], m.DescribeConfigsRequest.DescribeConfigsResource] = SteadyDict()
    async for each in in_slices(request.resources):
        asked[each.resource_type, each.resource_name, frozenset(each.configuration_keys or ())] = each
    results = [_result(broker, request, each, refusal) async for each in in_slices(asked.values(), 1)]
    await drop(asked)
    return m.DescribeConfigsResponse(results=results)


def _result(
    broker: BrokerServices,
    request: m.DescribeConfigsRequest,
    resource: m.DescribeConfigsRequest.DescribeConfigsResource,
    refusal: Refusal | None,
) -> m.DescribeConfigsResponse.DescribeConfigsResult:
    result = _Result(error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        if refusal is not None:
            raise refusal
        # An empty list means all of them, like null.
        entries = _describe(broker, resource.resource_type, resource.resource_name, resource.configuration_keys or None)
        result.configs = [_row(request, entry) for entry in entries]
    except Refusal as failure:
        result.error_code, result.error_message = failure.code, failure.message
    return result


def _describe(broker: BrokerServices, kind: int, name: str, keys: Collection[str] | None) -> list[DescribedConfig]:
    if kind == RESOURCE_TOPIC:
        check_name(name)
        if name not in broker.metadata.image.topics.by_name:
            raise unknown_topic(name)
        return describe_topic(broker.metadata.image.topic_config(name), broker.config, keys)
    if kind == RESOURCE_BROKER:
        if not name:
            return describe_default_broker(broker.config, keys)
        if name != str(broker.config.node_id):
            raise invalid_request(
                f"Unexpected broker id, expected {broker.config.node_id} or empty string, but received {name}. "
                "The empty one means the defaults of all brokers"
            )
        return describe_broker(broker.config, keys)
    raise invalid_request(f"settings of {_UNSERVED[kind]} are not served")


def _fitting(value: str | None) -> str | None:
    return None if value is None else fitting(value)


def _row(
    request: m.DescribeConfigsRequest, entry: DescribedConfig
) -> m.DescribeConfigsResponse.DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return _Config(
        name=entry.name,
        value=_fitting(entry.value),
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[_Synonym(name=each.name, value=_fitting(each.value), source=each.source) for each in synonyms],
        config_type=entry.type_id,
        documentation=entry.documentation if request.include_documentation else None,
    )


API = Api(m.DescribeConfigsRequest, 1, 4, handle)
