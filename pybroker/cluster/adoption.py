"""What would stop pybroker from going on where a stopped broker of Apache Kafka was, by its log dirs. Reads only.

Looks at the dirs' identity, at who has them, at the metadata that the broker had followed, and at which partitions lie
there. It does not read the logs: `pybroker log check` does. Blocks. Fails with OSError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pybroker.doctor.finding import Finding, Severity
from pybroker.metadata import features
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.offline import replay
from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage import clean_shutdown, directory_lock
from pybroker.storage.errors import StorageError
from pybroker.storage.meta_properties import FILE_NAME as META_PROPERTIES
from pybroker.storage.meta_properties import MetaProperties
from pybroker.storage.offline.layout import LogDirFiles, PartitionFiles

_PLAINTEXT = 0
#: Topics whose coordinators pybroker does not have: who leads a partition of theirs has to be one.
_COORDINATORS = {
    "__transaction_state": "coordinates transactions",
    "__share_group_state": "keeps the state of share groups",
}
_NOT_SERVED = {
    "AccessControlEntryRecord": ("access control lists", "this broker would let everybody do everything"),
    "UserScramCredentialRecord": ("SCRAM credentials", "nobody can authenticate with them at this broker"),
    "DelegationTokenRecord": ("delegation tokens", "nobody can authenticate with them at this broker"),
    "ClientQuotaRecord": ("client quotas", "this broker does not hold clients to them"),
}
_TIERED = "remote.storage.enable"


def examine_adoption(log_dirs: Sequence[Path]) -> list[Finding]:
    """What is wrong with these log dirs, all of them one broker's."""
    found: list[Finding] = []
    properties: dict[Path, MetaProperties] = {}
    for path in log_dirs:
        identity = _identity(path, found)
        if identity is not None:
            properties[path] = identity
            found += _state(path)
    if not properties:
        return found
    found += _one_broker(properties)
    files = [LogDirFiles.of(path) for path in properties]
    partitions = [partition for each in files for partition in each.partitions]
    found += _coordinators(partitions)
    found += _metadata(partitions, properties)
    return found


def _identity(path: Path, found: list[Finding]) -> MetaProperties | None:
    why = "nothing says which broker it is"
    remedy = "give the directories of log.dirs"
    try:
        identity = MetaProperties.read(path) if path.is_dir() else None
    except StorageError as error:
        found.append(Finding(Severity.ERROR, "identity", str(path), str(error), why, remedy))
        return None
    if identity is None:
        what = f"it has no {META_PROPERTIES}" if path.is_dir() else "it is no directory"
        found.append(Finding(Severity.ERROR, "identity", str(path), what, why, remedy))
    return identity


def _state(path: Path) -> Iterator[Finding]:
    holder = directory_lock.holder(path)
    if holder is not None:
        yield Finding(
            Severity.ERROR,
            "in-use",
            str(path),
            f"process {holder} has it",
            "two brokers cannot share a log dir, and what is read while one writes is not what it will be",
            "stop that broker with SIGTERM, and wait for its end",
        )
    elif clean_shutdown.read(path) is None:
        yield Finding(
            Severity.WARNING,
            "unclean",
            str(path),
            "the broker was not stopped in order",
            "its logs are read and checked at the next start, which takes time, and the controller does not count on "
            "it as a leader until then",
            "start it as it was, let it catch up, and stop it with SIGTERM",
        )


def _one_broker(properties: dict[Path, MetaProperties]) -> Iterator[Finding]:
    first, *others = properties
    for path in others:
        try:
            properties[path].check(path, properties[first].node_id, properties[first].cluster_id)
        except StorageError as error:
            yield Finding(
                Severity.ERROR, "identity", str(path), str(error), "a broker has one id in one cluster", "leave it out"
            )


def _coordinators(partitions: Sequence[PartitionFiles]) -> Iterator[Finding]:
    for topic, what in _COORDINATORS.items():
        mine = sorted(partition.index for partition in partitions if partition.topic == topic)
        if mine:
            yield Finding(
                Severity.ERROR,
                "coordinator",
                f"{topic} {', '.join(map(str, mine))}",
                f"this broker {what}: it has replicas of these partitions",
                "pybroker has no coordinator for them, and would be asked to lead them",
                "move them to brokers of Apache Kafka with kafka-reassign-partitions.sh first",
            )


def _metadata(partitions: Sequence[PartitionFiles], properties: dict[Path, MetaProperties]) -> Iterator[Finding]:
    log = next((partition for partition in partitions if partition.is_metadata_log), None)
    if log is None:
        yield Finding(
            Severity.ERROR,
            "metadata",
            str(next(iter(properties)).parent),
            "none of these directories has the metadata log, __cluster_metadata-0",
            "it says what the cluster uses of what pybroker may lack",
            "give all directories of log.dirs, and that of metadata.log.dir",
        )
        return
    try:
        image = replay(log).image
    except MetadataError as error:
        yield Finding(
            Severity.ERROR,
            "metadata",
            str(log.path),
            str(error),
            "this version of pybroker cannot follow what the cluster does",
            "see `pybroker log check` for damage; else the cluster is newer than this pybroker",
        )
        return
    node_id = next(iter(properties.values())).node_id
    yield from _features(image)
    yield from _roles(image, node_id)
    yield from _registration(image, node_id, properties)
    yield from _retained(image)
    yield from _tiered(image, partitions)


def _features(image: MetadataImage) -> Iterator[Finding]:
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


def _roles(image: MetadataImage, node_id: int) -> Iterator[Finding]:
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


def _registration(image: MetadataImage, node_id: int, properties: dict[Path, MetaProperties]) -> Iterator[Finding]:
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


def _retained(image: MetadataImage) -> Iterator[Finding]:
    for kind in sorted({str(key[0]) for key in image.retained}):
        what, why = _NOT_SERVED.get(kind, (f"{kind}s", "they have no effect on this broker"))
        yield Finding(
            Severity.WARNING, "not-served", what, "the cluster has some", why, "see that nothing relies on them here"
        )


def _tiered(image: MetadataImage, partitions: Sequence[PartitionFiles]) -> Iterator[Finding]:
    for topic in sorted({partition.topic for partition in partitions}):
        if image.topic_config(topic).get(_TIERED) == "true":
            yield Finding(
                Severity.ERROR,
                "tiered",
                topic,
                f"it has {_TIERED}=true",
                "a part of its records is in remote storage, which pybroker does not read",
                "move its partitions to brokers of Apache Kafka with kafka-reassign-partitions.sh first",
            )
