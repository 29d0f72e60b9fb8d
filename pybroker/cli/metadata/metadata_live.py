"""The tree of a running cluster: each part is asked of its brokers when it is looked at."""

from __future__ import annotations

from functools import partial
from typing import Any

from pybroker import __version__
from pybroker.cli.metadata.metadata_tree import (
    DEFAULT_NAME,
    Children,
    Node,
    client_nodes,
    config_nodes,
    directory,
    leaf,
)
from pybroker.client import configs, groups, quotas, topics
from pybroker.client.cluster import Cluster
from pybroker.client.errors import NotServed, check
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import uuid_to_text

_METADATA_TOPIC = "__cluster_metadata"
_FEATURES_VERSIONS = (3, 4)
_KINDS = {
    "brokers": configs.ResourceType.BROKER,
    "client-metrics": configs.ResourceType.CLIENT_METRICS,
    "groups": configs.ResourceType.GROUP,
    "topics": configs.ResourceType.TOPIC,
}


def live_tree(cluster: Cluster) -> Node:
    """Its root."""
    return directory(
        {
            "brokers": Node(children=lambda: _brokers(cluster)),
            "cluster": Node(lambda: _cluster(cluster)),
            "configs": Node(children=lambda: _configs(cluster)),
            "features": Node(children=lambda: _features(cluster)),
            "groups": Node(children=lambda: _groups(cluster)),
            "quorum": Node(lambda: _quorum(cluster)),
            "topics": Node(children=lambda: _topics(cluster)),
        }
    )


def _cluster(cluster: Cluster) -> dict[str, Any]:
    answer = cluster.metadata()
    brokers = sorted(each.node_id for each in answer.brokers)
    return {"cluster_id": answer.cluster_id, "controller_id": answer.controller_id, "brokers": brokers}


def _brokers(cluster: Cluster) -> Children:
    brokers = sorted(cluster.metadata().brokers, key=lambda each: each.node_id)
    return {
        str(each.node_id): leaf({"id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack})
        for each in brokers
    }


def _features(cluster: Cluster) -> Children:
    request = m.ApiVersionsRequest(client_software_name="pybroker", client_software_version=__version__)
    answer = cluster.call(request, versions=_FEATURES_VERSIONS)
    check("ApiVersions", answer.error_code)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return {
        each.name: leaf(
            {"level": levels.get(each.name, 0), "supported_from": each.min_version, "supported_to": each.max_version}
        )
        for each in sorted(answer.supported_features, key=lambda each: each.name)
    }


def _topics(cluster: Cluster) -> Children:
    return {topic.name: _topic(topic) for topic in topics.describe(cluster)}


def _topic(topic: topics.Topic) -> Node:
    partitions = {
        str(each.index): leaf(
            {
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
            }
        )
        for each in topic.partitions
    }
    content = {"name": topic.name, "id": uuid_to_text(topic.id), "partitions": len(topic.partitions)}
    return directory(partitions, content)


def _configs(cluster: Cluster) -> Children:
    nodes = {name: Node(children=partial(_resources, cluster, kind)) for name, kind in _KINDS.items()}
    nodes |= {name: Node(children=partial(_clients, cluster, name)) for name in ("clients", "ips", "users")}
    return dict(sorted(nodes.items()))


def _clients(cluster: Cluster, kind: str) -> Children:
    nodes = client_nodes(quotas.describe(cluster), quotas.credentials(cluster) if kind == "users" else {})
    listed = nodes[kind].children
    return listed() if listed is not None else {}


def _resources(cluster: Cluster, kind: configs.ResourceType) -> Children:
    resources = [(kind, name) for name in configs.list_resources(cluster, kind)]
    if kind is configs.ResourceType.BROKER and (kind, configs.CLUSTER_DEFAULT) not in resources:
        resources.append((kind, configs.CLUSTER_DEFAULT))
    found = configs.describe(cluster, resources) if resources else {}
    return {
        resource[1] or DEFAULT_NAME: config_nodes({each.name: each.value for each in settings if each.is_own(resource)})
        for resource, settings in sorted(found.items(), key=lambda item: item[0][1])
    }


def _groups(cluster: Cluster) -> Children:
    return {each.name: Node(partial(_group, cluster, each)) for each in groups.list_groups(cluster)}


def _group(cluster: Cluster, listed: groups.Listed) -> dict[str, Any]:
    content: dict[str, Any] = {"name": listed.name, "state": listed.state, "type": listed.type}
    content["coordinator"] = listed.coordinator
    if listed.type in (groups.CLASSIC, groups.CONSUMER):
        described = groups.describe(cluster, listed.name)
        content["members"] = [each.id for each in described.members]
        offsets: dict[str, dict[str, int]] = {}
        for (topic, index), offset in sorted(groups.committed(cluster, listed.name).items()):
            offsets.setdefault(topic, {})[str(index)] = offset
        content["offsets"] = offsets
    return content


def _quorum(cluster: Cluster) -> dict[str, Any]:
    wanted = m.DescribeQuorumRequest.TopicData(
        topic_name=_METADATA_TOPIC, partitions=[m.DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    try:
        answer = cluster.call(m.DescribeQuorumRequest(topics=[wanted]))
    except NotServed as error:
        return {"error": str(error)}
    check("DescribeQuorum", answer.error_code, answer.error_message)
    (partition,) = answer.topics[0].partitions
    check("DescribeQuorum", partition.error_code, partition.error_message)
    return {
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "high_watermark": partition.high_watermark,
        "voters": [each.replica_id for each in partition.current_voters],
        "observers": [each.replica_id for each in partition.observers],
    }
