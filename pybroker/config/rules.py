"""Rules that tie several broker settings together: which listeners result, and which values contradict each other.

Pure functions over a BrokerConfig. Failures: ConfigError, which names the settings and the necessary change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pybroker.config.definition import ConfigError, format_value
from pybroker.config.listeners import (
    SERVED_PROTOCOLS,
    Listener,
    check_ports_differ,
    check_served,
    parse_listeners,
    parse_protocol_map,
)
from pybroker.config.notices import GENERATED_ID
from pybroker.config.support import REFUSALS

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig

Listeners = tuple[Listener, ...]

_CONTROLLER_HOST = "127.0.0.1"
_CONTROLLER_PORT = 9093
_MIB = 1 << 20
_MOST_CONNECTIONS = 2**31 - 1
_CONNECTION_OVERRIDE = re.compile(r"(?P<host>[^\s,]+):(?P<count>[0-9]{1,10})")


def resolve_listeners(config: BrokerConfig) -> tuple[Listeners, Listeners, Listener]:
    """The broker's listeners, the advertised ones, and the controller's endpoint. Raises ConfigError."""
    controllers = [name.upper() for name in config.get_list("controller.listener.names")]
    protocols = parse_protocol_map(config.get_str("listener.security.protocol.map"))
    if not config.is_set("listener.security.protocol.map"):
        protocols |= {name: "PLAINTEXT" for name in controllers if name not in protocols}
    every = parse_listeners("listeners", config.get_list("listeners"), protocols)
    check_ports_differ("listeners", every)
    own = tuple(listener for listener in every if listener.name not in controllers)
    if not own:
        raise ConfigError(
            "listeners has only controller listeners; add one for clients, such as PLAINTEXT://:9092", "listeners"
        )
    check_served("listeners", own)
    advertised = _advertised(config, own, controllers, protocols)
    return own, advertised, _controller_listener(config, every, controllers)


def _advertised(
    config: BrokerConfig, own: Listeners, controllers: list[str], protocols: dict[str, str]
) -> tuple[Listener, ...]:
    items = config.get_list("advertised.listeners")
    advertised = own
    if items:
        parsed = parse_listeners("advertised.listeners", items, protocols)
        advertised = tuple(listener for listener in parsed if listener.name not in controllers)
    by_name = {listener.name: listener for listener in advertised}
    _check_advertised(by_name, [listener.name for listener in own])
    inter_broker = config.get("inter.broker.listener.name")
    if isinstance(inter_broker, str) and inter_broker.upper() not in by_name:
        raise ConfigError(
            f"inter.broker.listener.name is {inter_broker}, which is not among advertised.listeners",
            "inter.broker.listener.name",
            "advertised.listeners",
        )
    if config.joins_quorum and config.inter_broker_listener not in by_name:
        raise ConfigError(
            f"no listener is named {config.inter_broker_listener}, the one by which brokers reach each other while "
            f"inter.broker.listener.name says no other; set that to one of {', '.join(by_name)}",
            "inter.broker.listener.name",
            "advertised.listeners",
        )
    return tuple(by_name[listener.name] for listener in own)


def _check_advertised(advertised: Mapping[str, Listener], names: list[str]) -> None:
    key = "advertised.listeners"
    for name, listener in advertised.items():
        if name not in names:
            raise ConfigError(f"{key} names {name}, which is not among listeners; add it there", key, "listeners")
        if listener.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"{key} would tell clients to connect to {listener.host}; "
                "set a host name or address that clients can reach",
                key,
                "listeners",
            )
    for name in names:
        if name not in advertised:
            raise ConfigError(
                f"{key} leaves out {name}, so who connects there would find no broker; add it", key, "listeners"
            )


def _controller_listener(config: BrokerConfig, every: Listeners, controllers: list[str]) -> Listener:
    """From listeners, else from controller.quorum.voters, else the default endpoint."""
    for listener in every:
        if listener.name in controllers:
            return Listener(listener.name, listener.host or _CONTROLLER_HOST, listener.port, listener.security_protocol)
    for voter in config.get_list("controller.quorum.voters"):
        node, _, address = voter.partition("@")
        host, _, port = address.rpartition(":")
        if int(node) == config.node_id:
            return Listener(controllers[0], host.strip("[]"), int(port), "PLAINTEXT")
    return Listener(controllers[0], _CONTROLLER_HOST, _CONTROLLER_PORT, "PLAINTEXT")


def check_broker(config: BrokerConfig) -> None:
    """Raises ConfigError for values that contradict each other, or that ask for a role which is not served."""
    _check_roles(config)
    _check_refused(config)
    _check_log(config)
    _check_network(config)
    _check_order(config, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    _check_order(config, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
    _check_order(config, "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")
    for key in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if not 0 <= config.get_int(key) <= 4:
            raise ConfigError(
                f"{key} cannot be {config.get(key)}; accepted: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd", key
            )
    if config.get_int("broker.heartbeat.interval.ms") * 2 > config.get_int("broker.session.timeout.ms"):
        raise ConfigError(
            "broker.session.timeout.ms must be at least twice broker.heartbeat.interval.ms",
            "broker.session.timeout.ms",
            "broker.heartbeat.interval.ms",
        )


def _check_order(config: BrokerConfig, low: str, high: str) -> None:
    if config.get_int(low) > config.get_int(high):
        raise ConfigError(f"{low} ({config.get(low)}) must not be above {high} ({config.get(high)})", low, high)


def _check_roles(config: BrokerConfig) -> None:
    roles = set(config.get_list("process.roles"))
    if roles not in ({"broker", "controller"}, {"broker"}):
        raise ConfigError(
            f"process.roles cannot be {','.join(config.get_list('process.roles'))!r}; accepted: broker,controller "
            "(this node keeps its own metadata) and broker (Apache Kafka's controllers keep it)",
            "process.roles",
        )
    if config.is_set("broker.id") and config.get_int("broker.id") not in (int(GENERATED_ID), config.node_id):
        raise ConfigError(
            "broker.id and node.id differ; they are one number, so set node.id alone", "broker.id", "node.id"
        )
    voters = config.get_list("controller.quorum.voters")
    if roles == {"broker"}:
        _check_joining(config, [int(voter.partition("@")[0]) for voter in voters])
    elif voters and [int(voter.partition("@")[0]) for voter in voters] != [config.node_id]:
        raise ConfigError(
            f"controller.quorum.voters is {','.join(voters)}; accepted: this node alone, {config.node_id}@host:port",
            "controller.quorum.voters",
            "node.id",
        )


def _check_joining(config: BrokerConfig, voter_ids: list[int]) -> None:
    """The needs of a broker that joins the controllers of others."""
    servers = config.get_list("controller.quorum.bootstrap.servers")
    if not servers and not voter_ids:
        raise ConfigError(
            "process.roles=broker needs controller.quorum.bootstrap.servers: the addresses of the controllers to join",
            "process.roles",
            "controller.quorum.bootstrap.servers",
        )
    if config.node_id in voter_ids:
        raise ConfigError(
            f"controller.quorum.voters has node {config.node_id}, which is this broker; a broker that is no controller "
            "needs a node.id of its own",
            "node.id",
            "controller.quorum.voters",
        )
    controllers = [name.upper() for name in config.get_list("controller.listener.names")]
    for item in config.get_list("listeners"):
        name = item.partition(":")[0].upper()
        if name in controllers:
            raise ConfigError(
                f"listeners has {name}, which controller.listener.names calls a controller's; with "
                "process.roles=broker nothing listens for a controller here, so remove it",
                "listeners",
                "controller.listener.names",
            )
    protocol = parse_protocol_map(config.get_str("listener.security.protocol.map")).get(controllers[0], "PLAINTEXT")
    if protocol not in SERVED_PROTOCOLS:
        raise ConfigError(
            f"listener {controllers[0]} of the controllers stands for {protocol}, which is not served; accepted: "
            f"{', '.join(SERVED_PROTOCOLS)} (change listener.security.protocol.map)",
            "listener.security.protocol.map",
            "controller.listener.names",
        )


def _check_refused(config: BrokerConfig) -> None:
    for name, refusal in REFUSALS.items():
        text = format_value(config.get(name)) or ""
        if text != refusal.accepted:
            raise ConfigError(f"{name} cannot be {text[:100]!r}: {refusal.reason}; {refusal.advice}", name)


def _check_log(config: BrokerConfig) -> None:
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if config.get(key) == 0:
            raise ConfigError(f"{key} cannot be 0; accepted: -1 for no bound, or at least 1", key)
    for key, least in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = config.get(key)
        if isinstance(value, int) and value < least:
            raise ConfigError(f"{key} cannot be {value}; accepted: at least {least}", key)
    unknown = set(config.get_list("cordoned.log.dirs")) - {str(path) for path in config.log_dirs} - {"*"}
    if unknown:
        raise ConfigError(
            f"cordoned.log.dirs names {sorted(unknown)[0]}, which is not among log.dirs",
            "cordoned.log.dirs",
            "log.dirs",
        )
    dedupe = config.get_int("log.cleaner.dedupe.buffer.size")
    if dedupe // max(1, config.get_int("log.cleaner.threads")) <= _MIB:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size is {dedupe}; give it more than 1 MiB for each of log.cleaner.threads",
            "log.cleaner.dedupe.buffer.size",
            "log.cleaner.threads",
        )


def _check_network(config: BrokerConfig) -> None:
    connection_overrides(config.get_str("max.connections.per.ip.overrides"))
    queued = config.get_int("queued.max.request.bytes")
    if 0 < queued < config.get_int("socket.request.max.bytes"):
        raise ConfigError(
            "queued.max.request.bytes must be -1 or at least socket.request.max.bytes",
            "queued.max.request.bytes",
            "socket.request.max.bytes",
        )


def connection_overrides(text: str) -> dict[str, int]:
    """Host or address → most connections, from the text of max.connections.per.ip.overrides. Raises ConfigError."""
    found = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        match = _CONNECTION_OVERRIDE.fullmatch(item)
        if match is None or int(match["count"]) > _MOST_CONNECTIONS:
            raise ConfigError(
                f"max.connections.per.ip.overrides has the item {item[:100]!r}; "
                f"accepted: host:count pairs with a count from 0 to {_MOST_CONNECTIONS}",
                "max.connections.per.ip.overrides",
            )
        found[match["host"]] = int(match["count"])
    return found
