"""`MetadataDelta`: the only thing that changes metadata, one record at a time, and the changes it made.

    delta = MetadataDelta(image); delta.replay(record, version) ...; new_image = delta.apply(provenance)

Pure, used by one thread. Parts that no record touched are shared with the base image. A record that contradicts the
state (an unknown topic, a stale broker epoch) raises `MetadataError`; the delta is worthless then. Transaction markers
never come here: who reads the log holds records back until their transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from pybroker.metadata.delta_cluster import ClusterDelta
from pybroker.metadata.delta_topics import TopicsDelta
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import (
    RESOURCE_TOPIC,
    ConfigResource,
    MetadataImage,
    Provenance,
    QuorumImage,
    QuotaEntity,
    ScramCredential,
    TopicImage,
    Voter,
    quota_entity,
)
from pybroker.protocol import messages as m
from pybroker.turns import run_at_once


class MetadataDelta:
    """Changes on top of `base`. Publishers look at `topics_changed`, `configs_changed`, `cluster.changed`,
    `feature_levels_changed`, `client_quotas_changed`, `retained_kinds`."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.topics = TopicsDelta(base.topics)
        self.cluster = ClusterDelta(base.cluster)
        self.configs_changed: set[ConfigResource] = set()
        self.retained_kinds: set[str] = set()
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self._feature_levels: dict[str, int] | None = None
        self._next_producer_id = base.next_producer_id
        self._client_quotas: dict[QuotaEntity, Mapping[str, float]] | None = None
        self._scram_credentials: dict[tuple[int, str], ScramCredential] | None = None
        self._retained: dict[tuple[Any, ...], tuple[Any, int]] | None = None
        self._quorum = base.quorum

    @property
    def topics_changed(self) -> Mapping[bytes, TopicImage | None]:
        """Topic id to its new image (None: deleted), for every topic a record touched."""
        return self.topics.changed

    @property
    def feature_levels_changed(self) -> bool:
        """Whether a feature level was set."""
        return self._feature_levels is not None

    @property
    def client_quotas_changed(self) -> bool:
        """Whether a client quota was set or removed."""
        return self._client_quotas is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was changed."""
        return (
            not self.topics.changed
            and not self.cluster.is_changed
            and not self.configs_changed
            and not self.feature_levels_changed
            and not self.client_quotas_changed
            and self._scram_credentials is None
            and self._retained is None
            and self._next_producer_id == self.base.next_producer_id
            and self._quorum is self.base.quorum
        )

    def replay(self, record: Any, version: int) -> None:
        """Apply one metadata record of `version`."""
        kind = type(record).__name__
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise MetadataError(
                f"cannot replay a {kind} (version {version}): it has no meaning outside its transaction"
            )
        handler(self, record, version)

    def replay_control(self, record: Any) -> None:
        """Apply one control record (KIP-595, KIP-853)."""
        kind = type(record).__name__
        if kind == "LeaderChangeMessage":
            self._quorum = self._quorum.replace(leader_id=record.leader_id)
        elif kind == "KRaftVersionRecord":
            self._quorum = self._quorum.replace(kraft_version=record.kraft_version)
        elif kind == "VotersRecord":
            self._quorum = self._quorum.replace(voters=tuple(_voter(voter) for voter in record.voters))
        elif kind not in ("SnapshotHeaderRecord", "SnapshotFooterRecord"):
            raise MetadataError(f"unknown control record {kind} in the metadata log")

    def apply(self, provenance: Provenance) -> MetadataImage:
        """The image after all replayed records."""
        return run_at_once(self.apply_steps(provenance))

    def apply_steps(self, provenance: Provenance) -> Generator[None, None, MetadataImage]:
        """As `apply`; yields where it may be interrupted."""
        topics = yield from self.topics.apply_steps()
        base = self.base
        return MetadataImage(
            cluster_id=base.cluster_id,
            provenance=provenance,
            feature_levels=base.feature_levels if self._feature_levels is None else self._feature_levels,
            cluster=self.cluster.apply(),
            topics=topics,
            configs=base.configs if self._configs is None else self._configs,
            next_producer_id=self._next_producer_id,
            client_quotas=base.client_quotas if self._client_quotas is None else self._client_quotas,
            scram_credentials=base.scram_credentials if self._scram_credentials is None else self._scram_credentials,
            retained=base.retained if self._retained is None else self._retained,
            quorum=self._quorum,
        )

    def _replay_topic(self, record: m.TopicRecord, _version: int) -> None:
        self.topics.create(record)

    def _replay_partition(self, record: m.PartitionRecord, _version: int) -> None:
        self.topics.put_partition(record)

    def _replay_partition_change(self, record: m.PartitionChangeRecord, _version: int) -> None:
        self.topics.change_partition(record)

    def _replay_clear_elr(self, record: m.ClearElrRecord, _version: int) -> None:
        self.topics.clear_elr(record)

    def _replay_remove_topic(self, record: m.RemoveTopicRecord, _version: int) -> None:
        name = self.topics.remove(record)
        resource = (RESOURCE_TOPIC, name)
        configs = self._writable_configs()
        if configs.pop(resource, None) is not None:
            self.configs_changed.add(resource)

    def _writable_configs(self) -> dict[ConfigResource, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self.base.configs)
        return self._configs

    def _replay_config(self, record: m.ConfigRecord, _version: int) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._writable_configs()
        values = dict(configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            configs[resource] = values
        else:
            configs.pop(resource, None)
        self.configs_changed.add(resource)

    def _replay_feature_level(self, record: m.FeatureLevelRecord, _version: int) -> None:
        if self._feature_levels is None:
            self._feature_levels = dict(self.base.feature_levels)
        if record.feature_level == 0:
            self._feature_levels.pop(record.name, None)
        else:
            self._feature_levels[record.name] = record.feature_level

    def _replay_producer_ids(self, record: m.ProducerIdsRecord, _version: int) -> None:
        self._next_producer_id = record.next_producer_id

    def _replay_nothing(self, _record: object, _version: int) -> None:
        """NoOpRecord keeps an idle log moving; ZkMigrationStateRecord is of a migration that ended before Kafka 4."""

    def _retain(self, key: tuple[Any, ...], record: Any, version: int) -> None:
        if self._retained is None:
            self._retained = dict(self.base.retained)
        self._retained[key] = (record, version)
        self.retained_kinds.add(key[0])

    def _forget(self, key: tuple[Any, ...]) -> None:
        if self._retained is None:
            self._retained = dict(self.base.retained)
        self._retained.pop(key, None)

    def _replay_acl(self, record: m.AccessControlEntryRecord, version: int) -> None:
        self._retain(("AccessControlEntryRecord", record.id), record, version)

    def _replay_remove_acl(self, record: m.RemoveAccessControlEntryRecord, _version: int) -> None:
        self._forget(("AccessControlEntryRecord", record.id))

    def _replay_scram(self, record: m.UserScramCredentialRecord, _version: int) -> None:
        self._writable_scram_credentials()[record.mechanism, record.name] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )

    def _replay_remove_scram(self, record: m.RemoveUserScramCredentialRecord, _version: int) -> None:
        self._writable_scram_credentials().pop((record.mechanism, record.name), None)

    def _writable_scram_credentials(self) -> dict[tuple[int, str], ScramCredential]:
        if self._scram_credentials is None:
            self._scram_credentials = dict(self.base.scram_credentials)
        return self._scram_credentials

    def _replay_token(self, record: m.DelegationTokenRecord, version: int) -> None:
        self._retain(("DelegationTokenRecord", record.token_id), record, version)

    def _replay_remove_token(self, record: m.RemoveDelegationTokenRecord, _version: int) -> None:
        self._forget(("DelegationTokenRecord", record.token_id))

    def _replay_quota(self, record: m.ClientQuotaRecord, _version: int) -> None:
        if self._client_quotas is None:
            self._client_quotas = dict(self.base.client_quotas)
        entity = quota_entity({part.entity_type: part.entity_name for part in record.entity})
        values = dict(self._client_quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self._client_quotas[entity] = values
        else:
            self._client_quotas.pop(entity, None)

    def _replay_register_broker(self, record: m.RegisterBrokerRecord, _version: int) -> None:
        self.cluster.register_broker(record)

    def _replay_unregister_broker(self, record: m.UnregisterBrokerRecord, _version: int) -> None:
        self.cluster.unregister_broker(record)

    def _replay_registration_change(self, record: m.BrokerRegistrationChangeRecord, _version: int) -> None:
        self.cluster.change_broker(record)

    def _replay_fence(self, record: m.FenceBrokerRecord, _version: int) -> None:
        self.cluster.set_fenced(record.id, record.epoch, True)

    def _replay_unfence(self, record: m.UnfenceBrokerRecord, _version: int) -> None:
        self.cluster.set_fenced(record.id, record.epoch, False)

    def _replay_register_controller(self, record: m.RegisterControllerRecord, _version: int) -> None:
        self.cluster.register_controller(record)

    def _replay_unregister_controller(self, record: m.UnregisterControllerRecord, _version: int) -> None:
        self.cluster.unregister_controller(record)


def _voter(voter: Any) -> Voter:
    versions = voter.kraft_version_feature
    return Voter(
        voter.voter_id,
        voter.voter_directory_id,
        tuple((endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
        (versions.min_supported_version, versions.max_supported_version),
    )


def empty_image(cluster_id: str) -> MetadataImage:
    """The image before the first record."""
    return MetadataImage(cluster_id=cluster_id, quorum=QuorumImage())


_HANDLERS: Mapping[str, Callable[[MetadataDelta, Any, int], None]] = {
    "RegisterBrokerRecord": MetadataDelta._replay_register_broker,
    "UnregisterBrokerRecord": MetadataDelta._replay_unregister_broker,
    "TopicRecord": MetadataDelta._replay_topic,
    "PartitionRecord": MetadataDelta._replay_partition,
    "ConfigRecord": MetadataDelta._replay_config,
    "PartitionChangeRecord": MetadataDelta._replay_partition_change,
    "FenceBrokerRecord": MetadataDelta._replay_fence,
    "UnfenceBrokerRecord": MetadataDelta._replay_unfence,
    "RemoveTopicRecord": MetadataDelta._replay_remove_topic,
    "DelegationTokenRecord": MetadataDelta._replay_token,
    "UserScramCredentialRecord": MetadataDelta._replay_scram,
    "FeatureLevelRecord": MetadataDelta._replay_feature_level,
    "ClientQuotaRecord": MetadataDelta._replay_quota,
    "ProducerIdsRecord": MetadataDelta._replay_producer_ids,
    "BrokerRegistrationChangeRecord": MetadataDelta._replay_registration_change,
    "AccessControlEntryRecord": MetadataDelta._replay_acl,
    "RemoveAccessControlEntryRecord": MetadataDelta._replay_remove_acl,
    "NoOpRecord": MetadataDelta._replay_nothing,
    "ZkMigrationStateRecord": MetadataDelta._replay_nothing,
    "RemoveUserScramCredentialRecord": MetadataDelta._replay_remove_scram,
    "RemoveDelegationTokenRecord": MetadataDelta._replay_remove_token,
    "RegisterControllerRecord": MetadataDelta._replay_register_controller,
    "UnregisterControllerRecord": MetadataDelta._replay_unregister_controller,
    "ClearElrRecord": MetadataDelta._replay_clear_elr,
}
