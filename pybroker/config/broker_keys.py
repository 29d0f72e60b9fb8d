"""All keys of a broker: Kafka's tables and ours in one, and what stands behind a name. Values alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pybroker.config.definition import ConfigKey, by_name
from pybroker.config.keys.cluster import CLUSTER_KEYS
from pybroker.config.keys.coordinator import COORDINATOR_KEYS
from pybroker.config.keys.group import GROUP_KEYS
from pybroker.config.keys.log import LOG_KEYS
from pybroker.config.keys.network import NETWORK_KEYS
from pybroker.config.keys.own import OWN_KEYS
from pybroker.config.keys.remote import REMOTE_KEYS
from pybroker.config.keys.security import SECURITY_KEYS
from pybroker.config.keys.throttle import THROTTLE_KEYS

_OF_LISTENER = "listener.name."

BROKER_KEYS: Mapping[str, ConfigKey] = by_name(
    LOG_KEYS,
    NETWORK_KEYS,
    GROUP_KEYS,
    COORDINATOR_KEYS,
    CLUSTER_KEYS,
    SECURITY_KEYS,
    REMOTE_KEYS,
    THROTTLE_KEYS,
    OWN_KEYS,
)


def base_name(name: str) -> str:
    """The key behind a name with the prefix of a listener, and perhaps of a SASL mechanism; `name` if it has none."""
    base = name
    if name not in BROKER_KEYS and name.startswith(_OF_LISTENER):
        base = name.removeprefix(_OF_LISTENER).partition(".")[2]
        while base and base not in BROKER_KEYS:
            base = base.partition(".")[2]
    return base or name


def find_key(name: str) -> ConfigKey | None:
    """The key that `name` stands for, also when it is prefixed for one listener (KIP-103); None if Kafka has none."""
    base = base_name(name)
    if base not in BROKER_KEYS:
        return None
    return BROKER_KEYS[name] if base == name else replace(BROKER_KEYS[base], name=name, honoured=False)
