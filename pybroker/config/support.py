"""The standing of each of Kafka's settings here: it has its effect, it is accepted without one, or it is refused.

`support_of` answers for any key, with the reason where the answer is not plainly yes. Values alone.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from pybroker.config.broker_keys import BROKER_KEYS, base_name
from pybroker.config.definition import ConfigKey
from pybroker.values import Value


class Support(enum.Enum):
    """The effect of setting a key."""

    SUPPORTED = "supported"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


class Standing(Value):
    """The standing of a key. `reason` says why it is not, or not wholly, supported; empty otherwise."""

    support: Support
    reason: str


class Refusal(Value):
    """Why a key may have no value but `accepted` (Kafka's text for it; empty is no value), and what to do instead."""

    accepted: str
    reason: str
    advice: str


def _no_java(consequence: str) -> Refusal:
    reason = f"it names a Java class, which this broker cannot load, and {consequence}"
    return Refusal("", reason, "remove the setting if that is meant")


#: A user who sets one of these relies on it, so the broker does not start as though it were in force.
REFUSALS: Mapping[str, Refusal] = {
    "authorizer.class.name": Refusal(
        "",
        "no authorizer is served, so every client would be allowed everything",
        "remove the setting if that is meant",
    ),
    "alter.config.policy.class.name": _no_java("every change of a configuration would be let through"),
    "client.quota.callback.class": _no_java("no client would be held back"),
    "config.providers": Refusal(
        "", "the ${…} in other values would be taken as they stand", "write the values themselves"
    ),
    "create.topic.policy.class.name": _no_java("every new topic would be let through"),
    "remote.log.storage.system.enable": Refusal(
        "false", "tiered storage is not served, so nothing would be copied away", "set it to false"
    ),
}

#: The same for topics.
TOPIC_REFUSALS: Mapping[str, Refusal] = {
    "remote.storage.enable": Refusal(
        "false", "tiered storage is not served, so nothing would be copied away", "set it to false"
    ),
}

_LISTENERS = "PLAINTEXT is the one security protocol that is served; a listener of another one is refused."

#: The unsupported parts of supported keys.
_LIMITS: Mapping[str, str] = {
    "broker.id": "Taken as node.id; -1 is taken as not set.",
    "controller.quorum.voters": "The controllers to join, or this node alone when it keeps its own metadata.",
    "listener.security.protocol.map": _LISTENERS,
    "listeners": _LISTENERS,
    "quota.window.num": "At most 1,000 samples are taken.",
    "replica.selector.class": (
        "With org.apache.kafka.common.replica.RackAwareReplicaSelector consumers go to a replica in their rack; with "
        "any other class they read from leaders."
    ),
    "security.inter.broker.protocol": _LISTENERS,
    "process.roles": "broker,controller keeps its own metadata, broker joins controllers of Apache Kafka.",
}

_CONTROLLERS_DECIDE = (
    "The controllers decide that, by the topic's setting or their own; a node with metadata of its own has one replica "
    "of everything."
)
_NODES = "Requests to other nodes have controller.socket.timeout.ms and replica.socket.timeout.ms."
_OWN_QUORUM = "The controller is part of this process and votes for itself."
_CONTROLLER = "The controller writes when there is something to write, and the metadata log takes care of the rest."
_THREADS = (
    "Reactors and the control loop do this work; pybroker.reactors and the hardware profile say how many there are."
)
_QUEUE = "Requests wait in their sockets, and pybroker.buffer.budget.bytes bounds the memory of those that were read."
_WAITING = "A delayed request is dropped at the moment it is done."
_METRICS = "Metrics are told at pybroker.metrics.listener."
_TLS = "TLS is not served: a listener of SSL or SASL_SSL is refused."
_SASL = "SASL is not served: a listener of SASL_PLAINTEXT or SASL_SSL is refused."
_TOKENS = "Delegation tokens are not served."
_TRANSACTIONS = "The transaction coordinator is not served."
_CONSUMER = "Groups of the consumer protocol (KIP-848) are not served; classic groups are."
_SHARE = "Share groups are not served."
_STREAMS = "Streams groups are not served."
_TIERED = "Tiered storage is not served."
_GROUP_LOOP = "The group coordinator runs on the control loop and writes what gathered in one turn of it."
_PER_ADDRESS = "Connections are bounded in all (max.connections), not by address or rate."
_KERNEL = "The kernel sizes the buffers of a socket by itself."
_FINAL = "Only versions that are final are served."

#: Why a key has no effect; the key itself counts before its longest prefix.
_IDLE: Mapping[str, str] = {
    "alter.log.dirs.replication.quota.": "The rate of moves between log directories is kept over the time of the move.",
    "auto.leader.rebalance.enable": _CONTROLLERS_DECIDE,
    "background.threads": _THREADS,
    "connection.failed.authentication.delay.ms": _SASL,
    "connections.max.reauth.ms": _SASL,
    "controller.performance.": "`pybroker events` names what took long.",
    "controller.quorum.": _OWN_QUORUM,
    "delegation.token.": _TOKENS,
    "delete.records.purgatory.": _WAITING,
    "early.start.listeners": "No listener waits for an authorizer.",
    "errors.deadletterqueue.": _SHARE,
    "fetch.purgatory.": _WAITING,
    "follower.fetch.last.tiered.offset.enable": _TIERED,
    "group.consumer.": _CONSUMER,
    "group.coordinator.": _GROUP_LOOP,
    "group.coordinator.rebalance.protocols": "Classic groups are served, and no others.",
    "group.share.": _SHARE,
    "group.streams.": _STREAMS,
    "internal.metadata.": _CONTROLLER,
    "kafka.metrics.": _METRICS,
    "leader.imbalance.": _CONTROLLERS_DECIDE,
    "local.retention.": _TIERED,
    "log.local.retention.": _TIERED,
    "log.remote.copy.": _TIERED,
    "max.connection.creation.rate": _PER_ADDRESS,
    "max.connections.per.ip": _PER_ADDRESS,
    "metadata.max.idle.interval.ms": _CONTROLLER,
    "metric.reporters": _METRICS,
    "metrics.": _METRICS,
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "offsets.topic.compression.codec": "The offsets topic is stored uncompressed.",
    "principal.builder.class": "On PLAINTEXT listeners everybody is User:ANONYMOUS.",
    "producer.id.expiration.check.interval.ms": "A log's upkeep looks for expired producers as well.",
    "producer.purgatory.": _WAITING,
    "queued.max.": _QUEUE,
    "remote.": _TIERED,
    "replica.high.watermark.checkpoint.interval.ms": (
        "High watermarks are written together with the recovery points: log.flush.offset.checkpoint.interval.ms."
    ),
    "replica.socket.receive.buffer.bytes": _KERNEL,
    "replication.quota.": "A throttle is kept over a second.",
    "sasl.": _SASL,
    "security.providers": _TLS,
    "server.max.startup.time.ms": "The service manager bounds how long a start may take.",
    "share.coordinator.": _SHARE,
    "share.fetch.": _SHARE,
    "socket.connection.setup.": _NODES,
    "socket.listen.backlog.size": "4,096 connections may wait, or as many as net.core.somaxconn allows.",
    "socket.receive.buffer.bytes": _KERNEL,
    "socket.send.buffer.bytes": _KERNEL,
    "ssl.": _TLS,
    "telemetry.max.bytes": "Clients are not asked for their metrics.",
    "transaction.": _TRANSACTIONS,
    "transactional.id.": _TRANSACTIONS,
    "unclean.leader.election.": _CONTROLLERS_DECIDE,
    "unstable.": _FINAL,
}


def support_of(key: ConfigKey) -> Standing:
    """The standing of `key`; one with the prefix of a listener goes by its base."""
    refusal = REFUSALS.get(key.name) or TOPIC_REFUSALS.get(key.name)
    if refusal is not None:
        but = f"Refused unless it is {refusal.accepted}" if refusal.accepted else "Refused when it is set"
        return Standing(Support.REFUSED, f"{but}: {refusal.reason}.")
    base = base_name(key.name)
    if base != key.name:
        of_all = support_of(BROKER_KEYS[base])
        alone = Standing(Support.NO_EFFECT, f"{base} is the same for all listeners; one cannot have its own.")
        return alone if of_all.support is Support.SUPPORTED else of_all
    if key.honoured:
        return Standing(Support.SUPPORTED, _LIMITS.get(key.name, ""))
    return Standing(Support.NO_EFFECT, _IDLE[idle_entry(key.name)])


def idle_entry(name: str) -> str:
    """The entry of the table of reasons that speaks for a key without effect. ValueError when there is none."""
    return max((entry for entry in _IDLE if name.startswith(entry)), key=len)


def idle_entries() -> tuple[str, ...]:
    """The entries of that table."""
    return tuple(_IDLE)
