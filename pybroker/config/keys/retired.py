"""Settings of older Apache Kafkas, most of them of the time of ZooKeeper, that the reference Kafka no longer has.

The names are those of Kafka 0.8 to 4.1 without those of the reference. A server.properties that has them is accepted,
and says what has become of each.
"""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.values import Value


class RetiredKey(Value):
    """A key that is no more. `replacements` are the keys of today that do its work, the first one above all."""

    name: str
    #: The last minor version that had it.
    until: str
    #: Its fate and its successor, as a sentence.
    fate: str
    replacements: tuple[str, ...] = ()


_NO_ZOOKEEPER = "there is no ZooKeeper: the broker keeps its metadata itself, in __cluster_metadata-0"
_NO_SECRETS = "passwords were encoded for ZooKeeper with it; the metadata log keeps none"
_ADDRESS = "the address to listen on is part of listeners"
_ADVERTISED = "the address that clients are told is part of advertised.listeners"
_FORMAT = "records are always kept in format v2, and clients that cannot read it are not served"
_DEFAULT_QUOTA = "quotas are part of the metadata (kafka-configs --alter --add-config … --entity-default)"
_SHUTDOWN = "a controlled shutdown needs no other broker here"

# fmt: off
_KEYS: tuple[RetiredKey, ...] = (
    RetiredKey("advertised.host.name", "2.8", _ADVERTISED, ("advertised.listeners",)),
    RetiredKey("advertised.port", "2.8", _ADVERTISED, ("advertised.listeners",)),
    RetiredKey("auto.include.jmx.reporter", "3.9", "there is no JMX; metrics are told over HTTP",
               ("pybroker.metrics.listener",)),
    RetiredKey("broker.id.generation.enable", "3.9", "ZooKeeper counted brokers; give the node its number",
               ("node.id",)),
    RetiredKey("control.plane.listener.name", "3.9", "what the controller wants does not come through a listener"),
    RetiredKey("controlled.shutdown.max.retries", "3.9", _SHUTDOWN),
    RetiredKey("controlled.shutdown.retry.backoff.ms", "3.9", _SHUTDOWN),
    RetiredKey("controller.message.queue.size", "0.8", "the controller's queue needs no size"),
    RetiredKey("delegation.token.master.key", "3.9", "it has another name", ("delegation.token.secret.key",)),
    RetiredKey("eligible.leader.replicas.enable", "3.9",
               "a feature of the cluster decides (kafka-features, eligible.leader.replicas.version)"),
    RetiredKey("group.coordinator.new.enable", "4.0", "there is one group coordinator"),
    RetiredKey("group.share.enable", "4.1", "a feature of the cluster decides (kafka-features, share.version)"),
    RetiredKey("group.share.max.groups", "4.0", "the number of share groups is not bounded"),
    RetiredKey("host.name", "2.8", _ADDRESS, ("listeners",)),
    RetiredKey("inter.broker.protocol.version", "3.9",
               "a feature of the cluster says it (kafka-features describe, metadata.version)"),
    RetiredKey("internal.metadata.max.fetch.size.in.bytes", "4.1", "it has another name",
               ("controller.quorum.fetch.max.bytes",)),
    RetiredKey("leader.imbalance.per.broker.percentage", "3.9", "leaders have no other broker to go to"),
    RetiredKey("log.message.downconversion.enable", "3.9", _FORMAT),
    RetiredKey("log.message.format.version", "3.9", _FORMAT),
    RetiredKey("log.message.timestamp.difference.max.ms", "3.9", "past and future have a bound each",
               ("log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms")),
    RetiredKey("metadata.log.segment.min.bytes", "4.0", "tests have a name of their own for it",
               ("internal.metadata.log.segment.bytes",)),
    RetiredKey("offsets.commit.required.acks", "3.9", "a commit always waits for all replicas in sync (-1)"),
    RetiredKey("password.encoder.cipher.algorithm", "3.9", _NO_SECRETS),
    RetiredKey("password.encoder.iterations", "3.9", _NO_SECRETS),
    RetiredKey("password.encoder.key.length", "3.9", _NO_SECRETS),
    RetiredKey("password.encoder.keyfactory.algorithm", "3.9", _NO_SECRETS),
    RetiredKey("password.encoder.old.secret", "3.9", _NO_SECRETS),
    RetiredKey("password.encoder.secret", "3.9", _NO_SECRETS),
    RetiredKey("port", "2.8", _ADDRESS, ("listeners",)),
    RetiredKey("quota.consumer.default", "2.8", _DEFAULT_QUOTA),
    RetiredKey("quota.producer.default", "2.8", _DEFAULT_QUOTA),
    RetiredKey("replica.lag.max.messages", "0.8", "a follower is late by time, not by records",
               ("replica.lag.time.max.ms",)),
    RetiredKey("reserved.broker.max.id", "3.9", "ZooKeeper counted brokers from there; give the node its number",
               ("node.id",)),
    RetiredKey("share.fetch.max.fetch.records", "4.0", "a client says how many records it wants"),
    RetiredKey("zookeeper.clientCnxnSocket", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.connect", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.connection.timeout.ms", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.max.in.flight.requests", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.metadata.migration.enable", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.metadata.migration.min.batch.size", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.session.timeout.ms", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.set.acl", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.cipher.suites", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.client.enable", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.crl.enable", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.enabled.protocols", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.endpoint.identification.algorithm", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.keystore.location", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.keystore.password", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.keystore.type", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.ocsp.enable", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.protocol", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.truststore.location", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.truststore.password", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.ssl.truststore.type", "3.9", _NO_ZOOKEEPER),
    RetiredKey("zookeeper.sync.time.ms", "3.0", _NO_ZOOKEEPER),
)

#: Topic settings, which a server.properties does not hold but a create request of an old tool may.
_TOPIC_KEYS: tuple[RetiredKey, ...] = (
    RetiredKey("message.downconversion.enable", "3.9", _FORMAT),
    RetiredKey("message.format.version", "3.9", _FORMAT),
    RetiredKey("message.timestamp.difference.max.ms", "3.9", "past and future have a bound each",
               ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")),
)
# fmt: on

RETIRED_KEYS: Mapping[str, RetiredKey] = {key.name: key for key in _KEYS}
RETIRED_TOPIC_KEYS: Mapping[str, RetiredKey] = {key.name: key for key in _TOPIC_KEYS}

#: Read by classes that Kafka loads, not by Kafka itself, so it knows them no more than this broker does.
PLUGIN_KEYS: Mapping[str, str] = {
    "allow.everyone.if.no.acl.found": "an authorizer's setting, and none is served: everybody may do everything",
    "super.users": "an authorizer's setting, and none is served: everybody may do everything",
}
