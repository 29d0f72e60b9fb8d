"""The properties of each node of a cluster that one broker has grown to. Pure."""

from __future__ import annotations

from pathlib import Path

from pybroker.cluster.controller_dirs import LISTENER, ControllerNode
from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import split_list

#: The broker's settings that controllers read as well.
_CONTROLLERS_TOO = (
    "broker.session.timeout.ms",
    "default.replication.factor",
    "min.insync.replicas",
    "num.partitions",
    "unclean.leader.election.enable",
)
#: Settings of a node that keeps its own metadata, and other names of node.id.
_LEFT_OUT = frozenset(
    {"broker.id", "controller.quorum.voters", "controller.quorum.bootstrap.servers", "metadata.log.dir"}
)
_OF_ONE_NODE = frozenset({"node.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "broker.rack"})
_PROTOCOLS = "listener.security.protocol.map"


def controller_properties(config: BrokerConfig, node: ControllerNode, bootstrap: str, data: Path) -> dict[str, str]:
    """server.properties of a controller, whose log dir is `data`; `bootstrap` has the addresses of all controllers."""
    return {
        "process.roles": "controller",
        "node.id": str(node.node_id),
        "listeners": f"{LISTENER}://{node.address}",
        "advertised.listeners": f"{LISTENER}://{node.address}",
        "controller.listener.names": LISTENER,
        "controller.quorum.bootstrap.servers": bootstrap,
        "log.dirs": str(data),
        **{key: config.static[key] for key in _CONTROLLERS_TOO if key in config.static},
    }


def broker_properties(config: BrokerConfig, bootstrap: str) -> dict[str, str]:
    """server.properties of the broker, with all that it was given, as one of a quorum."""
    kept = {key: value for key, value in config.static.items() if key not in _LEFT_OUT}
    own = {name.upper() for name in config.get_list("controller.listener.names")}
    for key in ("listeners", "advertised.listeners"):
        if key in kept:
            kept[key] = ",".join(item for item in split_list(kept[key]) if _name(item) not in own)
    if not kept.get("advertised.listeners", "-"):
        del kept["advertised.listeners"]
    if _PROTOCOLS in kept:
        others = [item for item in split_list(kept[_PROTOCOLS]) if _name(item) != LISTENER]
        kept[_PROTOCOLS] = ",".join([*others, f"{LISTENER}:PLAINTEXT"])
    return {
        **kept,
        "process.roles": "broker",
        "node.id": str(config.node_id),
        "log.dirs": ",".join(str(path.absolute()) for path in config.log_dirs),
        "controller.listener.names": LISTENER,
        "controller.quorum.bootstrap.servers": bootstrap,
    }


def _name(item: str) -> str:
    """The name of the listener in an item of a list."""
    return item.partition(":")[0].strip().upper()


def another_properties(config: BrokerConfig, bootstrap: str) -> dict[str, str]:
    """The same for one more broker, but for what every broker has of its own: that is to be filled in."""
    shared = {key: value for key, value in broker_properties(config, bootstrap).items() if key not in _OF_ONE_NODE}
    return {
        "node.id": "",
        "listeners": "PLAINTEXT://:9092",
        "advertised.listeners": "",
        "log.dirs": "",
        **shared,
    }
