"""`MetadataImage`: everything the metadata log says, at one offset. Immutable, so any thread may read it.

A new image shares all unchanged parts with the one before: whoever caches something per topic may compare
`TopicImage` objects by identity. Only `MetadataDelta` makes images. Uuids are 16-byte `bytes`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any

from pybroker.metadata import features
from pybroker.protocol.uuids import LOST_DIR, MIGRATING_DIR, UNASSIGNED_DIR
from pybroker.values import Value

NO_LEADER = -1
# Directory ids that stand for a state (KIP-858). One is of a replica from before brokers told their log dirs, and one
# of a replica whose broker has yet to tell it. The third is of a dir known to be out of service.
MIGRATING_DIRECTORY = MIGRATING_DIR
UNASSIGNED_DIRECTORY = UNASSIGNED_DIR
LOST_DIRECTORY = LOST_DIR

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4

ConfigResource = tuple[int, str]
"""(resource type, resource name); the name "" of a broker resource is the cluster-wide default."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Who has a client quota: (entity type, name) pairs in the order of the types. No name is the default of the type,
which is something else than an entity named ""."""


def quota_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """The entity that these names by type make."""
    return tuple(sorted(names.items(), key=lambda part: part[0]))


class Provenance(Value):
    """An image holds all records below `end_offset`; the last of them was written in `epoch` at `time_ms`."""

    end_offset: int = 0
    epoch: int = 0
    time_ms: int = 0


class Endpoint(Value):
    """A listener of a node. `security_protocol` is Kafka's id (0 = PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int


class BrokerRegistration(Value):
    """One registered broker. `epoch` is the offset of its RegisterBrokerRecord."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] | None

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener named `listener`."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


class ControllerRegistration(Value):
    """One registered controller of the quorum."""

    id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]


class PartitionRegistration(Value):
    """One partition's replicas and leadership. `partition_epoch` grows with every change, `leader_epoch` with every
    election. `directories` runs parallel to `replicas`."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int

    def directory(self, replica: int) -> bytes:
        """The directory id of a replica; `UNASSIGNED_DIRECTORY` when there is none."""
        for broker_id, directory in zip(self.replicas, self.directories, strict=False):
            if broker_id == replica:
                return directory
        return UNASSIGNED_DIRECTORY


def is_online(directories: Collection[bytes], directory: bytes) -> bool:
    """Whether a replica in `directory` can be used on a broker with these log dirs in service (KIP-858). A broker that
    tells none has all, and a replica whose directory nobody has noted yet is taken for usable."""
    return not directories or directory in directories or directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


class TopicImage(Value):
    """One topic with its partitions by index."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionRegistration]


class TopicsImage(Value):
    """All topics, by name and by id (the same objects)."""

    by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)


class ClusterImage(Value):
    """The registered nodes, by id."""

    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)


class Voter(Value):
    """A voter of the quorum as the VotersRecord names it; `endpoints` are (listener name, host, port)."""

    id: int
    directory_id: bytes
    endpoints: tuple[tuple[str, str, int], ...]
    kraft_version_range: tuple[int, int]


class QuorumImage(Value):
    """The state of the quorum by control records. `voters` is empty at kraft.version 0 (voters then come from
    settings)."""

    kraft_version: int = 0
    voters: tuple[Voter, ...] = ()
    leader_id: int = NO_LEADER


class ScramCredential(Value):
    """The check for a user's password (KIP-554); the password cannot be told from it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class MetadataImage(Value):
    """All of it. `client_quotas` has values by quota key; `scram_credentials` are by mechanism, as the protocol numbers
    them, and user. `retained` holds the records of features that are not served, by what identifies them, so that a
    snapshot written here loses nothing: values are (record, version)."""

    cluster_id: str
    provenance: Provenance = Provenance()
    feature_levels: Mapping[str, int] = field(default_factory=dict)
    cluster: ClusterImage = ClusterImage()
    topics: TopicsImage = TopicsImage()
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    scram_credentials: Mapping[tuple[int, str], ScramCredential] = field(default_factory=dict)
    retained: Mapping[tuple[Any, ...], tuple[Any, int]] = field(default_factory=dict)
    quorum: QuorumImage = QuorumImage()

    @property
    def metadata_version(self) -> int:
        """The finalised metadata.version level (the lowest one when no record has set it)."""
        return self.feature_levels.get(features.METADATA_VERSION, features.MIN_METADATA_VERSION)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Overrides of one resource; empty when it has none."""
        return self.configs.get((resource_type, name), {})

    def topic_config(self, name: str) -> Mapping[str, str]:
        """Overrides of one topic."""
        return self.config(RESOURCE_TOPIC, name)

    def endpoint(self, node_id: int, listener: str) -> tuple[str, int] | None:
        """(host, port) of a broker on that listener; None when it is unknown, fenced, or has no such listener."""
        broker = self.cluster.brokers.get(node_id)
        endpoint = None if broker is None or broker.fenced else broker.endpoint(listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def at(self, provenance: Provenance) -> MetadataImage:
        """The same content, known to hold up to a later offset."""
        return self.replace(provenance=provenance)
