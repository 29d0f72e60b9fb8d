"""Findings about the metadata of a cluster that pybroker's brokers are to be part of. Pure but for `replayed`, which
reads the metadata log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pybroker.config.broker_keys import find_key
from pybroker.config.support import Support, support_of
from pybroker.config.topic import TOPIC_KEYS, topic_value_text
from pybroker.doctor.finding import Finding, Severity
from pybroker.metadata import client_quotas, features
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import RESOURCE_BROKER, MetadataImage, is_online
from pybroker.metadata.offline import Replayed, newest
from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import PartitionFiles

_PLAINTEXT = 0
#: Topics whose coordinators pybroker does not have: who leads a partition of theirs has to be one.
_COORDINATORS = {
    "__transaction_state": "coordinates transactions",
    "__share_group_state": "keeps the state of share groups",
}
_CLIENT_METRICS, _GROUP = 16, 32
_RESOURCES = {
    _CLIENT_METRICS: ("subscriptions to metrics of clients", "clients are not asked for them by this broker"),
    _GROUP: ("settings of groups", "they are of groups that this broker does not coordinate"),
}
_NOT_SERVED = {
    "AccessControlEntryRecord": ("access control lists", "this broker would let everybody do everything"),
    "DelegationTokenRecord": ("delegation tokens", "nobody can authenticate with them at this broker"),
}
_TIERED = "remote.storage.enable"


def replayed(
    partitions: Sequence[PartitionFiles], properties: dict[Path, MetaProperties], found: list[Finding]
) -> Replayed | None:
    """The state that the metadata log describes; None, with a finding, when there is no log or it cannot be
    followed."""
    logs = [partition for partition in partitions if partition.is_metadata_log]
    if not logs and any(each.version == 0 for each in properties.values()):
        found.append(
            Finding(
                Severity.ERROR,
                "metadata",
                str(next(iter(properties)).parent),
                "none of these directories has the metadata log, __cluster_metadata-0: of such a broker ZooKeeper may "
                "still keep the metadata",
                "pybroker's brokers join controllers, and these say what the cluster uses of what pybroker may lack",
                "give that of metadata.log.dir as well; if ZooKeeper has it, migrate with Apache Kafka 3.9 first",
            )
        )
        return None
    if not logs:
        found.append(
            Finding(
                Severity.ERROR,
                "metadata",
                str(next(iter(properties)).parent),
                "none of these directories has the metadata log, __cluster_metadata-0",
                "it says what the cluster uses of what pybroker may lack",
                "give all directories of log.dirs, and that of metadata.log.dir",
            )
        )
        return None
    try:
        # Where metadata.log.dir has been changed, an old one lies beside that which is followed.
        return newest(logs)
    except MetadataError as error:
        found.append(
            Finding(
                Severity.ERROR,
                "metadata",
                ", ".join(str(log.path) for log in logs),
                str(error),
                "this version of pybroker cannot follow what the cluster does",
                "see `pybroker log check` for damage; else the cluster is newer than this pybroker",
            )
        )
        return None


def coordinators(image: MetadataImage | None, node_id: int, partitions: Sequence[PartitionFiles]) -> Iterator[Finding]:
    """Whether it has, or is to have, partitions whose leader has to be more than pybroker is."""
    for topic, what in _COORDINATORS.items():
        mine = {partition.index for partition in partitions if partition.topic == topic}
        if image is not None and topic in image.topics.by_name:
            told = image.topics.by_name[topic].partitions
            mine |= {index for index, each in told.items() if node_id in each.replicas}
        if mine:
            yield Finding(
                Severity.ERROR,
                "coordinator",
                f"{topic} {', '.join(map(str, sorted(mine)))}",
                f"this broker {what}: it has replicas of these partitions",
                "pybroker has no coordinator for them, and would be asked to lead them",
                "move them to brokers of Apache Kafka with kafka-reassign-partitions.sh first",
            )


def finalised(image: MetadataImage) -> Iterator[Finding]:
    """Features that a broker of pybroker would not join."""
    lowest, highest = features.SUPPORTED[features.METADATA_VERSION]
    if not lowest <= image.metadata_version <= highest:
        yield Finding(
            Severity.ERROR,
            "feature",
            features.METADATA_VERSION,
            f"the cluster has finalised level {image.metadata_version}; pybroker serves {lowest} to {highest}",
            "the broker would refuse to join",
            "upgrade the cluster or pybroker",
        )
    for name, level in sorted(features.unserved(image.feature_levels).items()):
        if name == features.METADATA_VERSION:
            continue
        served = features.SUPPORTED.get(name, (0, 0))[1]
        yield Finding(
            Severity.ERROR,
            "feature",
            name,
            f"the cluster has finalised level {level}; pybroker serves {served}",
            "the broker would refuse to join",
            f"`kafka-features.sh --bootstrap-server HOST:PORT downgrade --feature {name}={served}`, when "
            "nothing needs it",
        )


def roles(image: MetadataImage, node_id: int) -> Iterator[Finding]:
    """Whether the node votes beside others."""
    voters = {voter.id for voter in image.quorum.voters}
    if node_id in voters and len(voters) > 1:
        yield Finding(
            Severity.ERROR,
            "controller",
            f"node {node_id}",
            "it is a controller as well, one of several",
            "brokers of pybroker do not vote: they join a quorum of Apache Kafka's controllers",
            "add a controller on a node of its own, and remove this one with kafka-metadata-quorum.sh",
        )


def registration(image: MetadataImage, node_id: int, properties: dict[Path, MetaProperties]) -> Iterator[Finding]:
    """Whether the cluster knows the node as a broker with these log dirs, and by what listeners."""
    broker = image.cluster.brokers.get(node_id)
    if broker is None:
        yield Finding(
            Severity.ERROR,
            "registration",
            f"node {node_id}",
            "the cluster does not know it as a broker",
            "these directories are of a controller, or of a broker that was unregistered",
            "take the directories of a broker",
        )
        return
    missing = set(broker.directories) - {each.directory_id for each in properties.values()}
    if missing:
        yield Finding(
            Severity.ERROR,
            "log-dirs",
            f"node {node_id}",
            f"it registered with more log dirs, of the ids {', '.join(sorted(map(uuid_to_text, missing)))}",
            "their partitions would be missing",
            "give all directories of log.dirs",
        )
    for endpoint in broker.endpoints:
        if endpoint.security_protocol != _PLAINTEXT:
            yield Finding(
                Severity.ERROR,
                "listener",
                endpoint.name,
                "it is encrypted or authenticated",
                "pybroker serves PLAINTEXT listeners only, so clients and other brokers would not reach it",
                "add a PLAINTEXT listener to all brokers first, and make it the inter.broker.listener.name",
            )


def controller_listeners(image: MetadataImage, node_id: int) -> Iterator[Finding]:
    """Whether the controllers can be reached. The node itself, if it is one, need not reach itself."""
    names = {
        endpoint.name
        for controller in image.cluster.controllers.values()
        for endpoint in controller.endpoints
        if controller.id != node_id and endpoint.security_protocol != _PLAINTEXT
    }
    for name in sorted(names):
        yield Finding(
            Severity.ERROR,
            "controller-listener",
            name,
            "the controllers' listener is encrypted or authenticated",
            "pybroker reaches controllers by a PLAINTEXT listener only, so this broker could not join",
            "give the controllers a PLAINTEXT listener as well, and name it first in this broker's "
            "controller.listener.names",
        )


def lost_replicas(image: MetadataImage, node_id: int, properties: dict[Path, MetaProperties]) -> Iterator[Finding]:
    """Whether replicas of the broker lie where none of these directories is, of which it has not registered either."""
    broker = image.cluster.brokers.get(node_id)
    here = {each.directory_id for each in properties.values()} | set(broker.directories if broker else ())
    lost = sorted(
        f"{topic.name}-{index}"
        for topic in image.topics.by_id.values()
        for index, each in topic.partitions.items()
        if node_id in each.replicas and not is_online(list(here), each.directory(node_id))
    )
    if lost:
        rest = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        yield Finding(
            Severity.WARNING,
            "log-dirs",
            f"{lost[0]}{rest}",
            "the log dir that they lie in was out of service when the broker ran last",
            "they stay without this replica until that dir is back",
            "mend it and give it as well, or move its replicas elsewhere",
        )


def dynamic_settings(image: MetadataImage, node_id: int) -> Iterator[Finding]:
    """The settings made with kafka-configs.sh, for this broker or for all, that pybroker does not heed."""
    given = {**image.config(RESOURCE_BROKER, ""), **image.config(RESOURCE_BROKER, str(node_id))}
    idle = []
    for name in sorted(given):
        key = find_key(name)
        if key is None or support_of(key).support is Support.NO_EFFECT:
            idle.append(name)
    if idle:
        yield Finding(
            Severity.WARNING,
            "settings",
            ", ".join(idle),
            "the metadata have these settings of brokers",
            "they have no effect on this broker",
            "see that nothing relies on them here; docs/configuration.md says why they have none",
        )


def topic_settings(image: MetadataImage, partitions: Sequence[PartitionFiles]) -> Iterator[Finding]:
    """Settings of topics that pybroker does not know."""
    for topic in sorted({partition.topic for partition in partitions}):
        unknown = sorted(set(image.topic_config(topic)) - set(TOPIC_KEYS))
        if unknown:
            yield Finding(
                Severity.WARNING,
                "settings",
                f"topic {topic}: {', '.join(unknown)}",
                "this version of pybroker does not know them",
                "they have no effect on this broker",
                "see that nothing relies on them here",
            )


def without_effect(image: MetadataImage) -> Iterator[Finding]:
    """The parts of the cluster's metadata that have no effect on a broker of pybroker."""
    for kind in sorted({str(key[0]) for key in image.retained}):
        what, why = _NOT_SERVED.get(kind, (f"{kind}s", "they have no effect on this broker"))
        yield _not_served(what, why)
    if image.scram_credentials:
        yield _not_served("SCRAM credentials", "nobody can authenticate with them at this broker")
    for key in client_quotas.not_enforced(image):
        yield _not_served(f"client quotas {key}", "this broker does not hold clients to them")
    for kind_id, (what, why) in _RESOURCES.items():
        if any(kind == kind_id for kind, _ in image.configs):
            yield Finding(
                Severity.NOTE, "not-served", what, "the cluster has some", why, "see that nothing relies on them here"
            )


def _not_served(what: str, why: str) -> Finding:
    return Finding(
        Severity.WARNING, "not-served", what, "the cluster has some", why, "see that nothing relies on them here"
    )


def tiered(image: MetadataImage, partitions: Sequence[PartitionFiles]) -> Iterator[Finding]:
    """Topics with remote storage (tiered storage): a part of their records may lie outside of this broker."""
    for topic in sorted({partition.topic for partition in partitions}):
        # The metadata has the value as somebody wrote it, and Apache Kafka accepts TRUE as well as true.
        if topic_value_text(TOPIC_KEYS[_TIERED], image.topic_config(topic).get(_TIERED, "")) == "true":
            yield Finding(
                Severity.ERROR,
                "tiered",
                topic,
                f"it has {_TIERED}=true",
                "a part of its records is in remote storage, which pybroker does not read",
                "move its partitions to brokers of Apache Kafka with kafka-reassign-partitions.sh first",
            )
