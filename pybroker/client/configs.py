"""Settings of topics, brokers and groups: look and change. Blocks; fails with `ClientError`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from pybroker.client.cluster import ANY_NODE, Cluster
from pybroker.client.errors import NotServed, RequestError, check
from pybroker.protocol import messages as m

_SET, _DELETE = 0, 1
_LIST_VERSIONS = (1, 1)


class ResourceType(IntEnum):
    """The kinds of resources that have settings."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


#: The broker resource whose settings hold for all brokers.
CLUSTER_DEFAULT = ""

Resource = tuple[ResourceType, str]


class Source(IntEnum):
    """Where a value comes from, the strongest first but for UNKNOWN."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


_OWN = {
    ResourceType.TOPIC: {Source.DYNAMIC_TOPIC_CONFIG},
    ResourceType.BROKER: {Source.DYNAMIC_BROKER_CONFIG, Source.DYNAMIC_DEFAULT_BROKER_CONFIG},
    ResourceType.CLIENT_METRICS: {Source.DYNAMIC_CLIENT_METRICS_CONFIG},
    ResourceType.GROUP: {Source.DYNAMIC_GROUP_CONFIG},
}


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that was set or is the default somewhere, stronger ones before."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Setting:
    """`value` is None where it is sensitive or not set."""

    name: str
    value: str | None
    source: Source
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]

    def is_own(self, resource: Resource) -> bool:
        """Whether it was set for just this resource, and can be deleted there."""
        sources = _OWN[resource[0]]
        if resource == (ResourceType.BROKER, CLUSTER_DEFAULT):
            sources = {Source.DYNAMIC_DEFAULT_BROKER_CONFIG}
        return self.source in sources


def describe(cluster: Cluster, resources: Collection[Resource]) -> dict[Resource, list[Setting]]:
    """All settings of each, by name. RequestError names a resource that is not there."""
    found = {}
    for node, group in _by_node(resources).items():
        request = m.DescribeConfigsRequest(
            resources=[
                m.DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for kind, name in group
            ],
            include_synonyms=True,
        )
        for each in cluster.call(request, node=node).results:
            resource = ResourceType(each.resource_type), each.resource_name
            check(text_of(resource), each.error_code, each.error_message)
            found[resource] = sorted(map(_setting, each.configs), key=lambda setting: setting.name)
    return found


def _setting(each: m.DescribeConfigsResponse.DescribeConfigsResourceResult) -> Setting:
    synonyms = tuple(Synonym(synonym.name, synonym.value, _source(synonym.source)) for synonym in each.synonyms)
    return Setting(each.name, each.value, _source(each.config_source), each.read_only, each.is_sensitive, synonyms)


def _source(number: int) -> Source:
    try:
        return Source(number)
    except ValueError:
        return Source.UNKNOWN


def alter(
    cluster: Cluster,
    resource: Resource,
    *,
    values: Mapping[str, str],
    delete: Collection[str] = (),
    validate_only: bool = False,
) -> None:
    """Set `values` and let go of those in `delete`; what is not named stays. All or nothing."""
    kind, name = resource
    changes = [(key, _SET, value) for key, value in values.items()] + [(key, _DELETE, None) for key in delete]
    wanted = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            m.IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = m.IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)
    (answer,) = cluster.call(request, node=_node_of(resource)).responses
    check(text_of(resource), answer.error_code, answer.error_message)


def list_resources(cluster: Cluster, kind: ResourceType) -> list[str]:
    """Names of the resources of that kind; those of groups and of brokers only where something is set or registered."""
    try:
        answer = cluster.call(m.ListConfigResourcesRequest(resource_types=[kind]), versions=_LIST_VERSIONS)
    except NotServed:
        if kind is ResourceType.TOPIC:
            return sorted(topic.name or "" for topic in cluster.metadata(None).topics)
        return [str(node) for node in cluster.nodes()] if kind is ResourceType.BROKER else []
    check("ListConfigResources", answer.error_code)
    return sorted(each.resource_name for each in answer.config_resources)


def text_of(resource: Resource) -> str:
    """For people."""
    kind, name = resource
    if resource == (ResourceType.BROKER, CLUSTER_DEFAULT):
        return "the default of brokers"
    return f"{kind.name.lower().replace('_', ' ')} {name}"


def _node_of(resource: Resource) -> int:
    """A broker tells and checks its own settings itself."""
    kind, name = resource
    if kind is not ResourceType.BROKER or name == CLUSTER_DEFAULT:
        return ANY_NODE
    try:
        return int(name)
    except ValueError:
        raise RequestError(f"broker {name}", 42, "the name of a broker is its node.id, a number") from None


def _by_node(resources: Collection[Resource]) -> dict[int, list[Resource]]:
    found: dict[int, list[Resource]] = {}
    for resource in resources:
        found.setdefault(_node_of(resource), []).append(resource)
    return found
