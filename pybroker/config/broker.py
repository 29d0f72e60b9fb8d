"""The broker's configuration: server.properties, command line overrides, and dynamic values on top.

A BrokerConfig is a value: a change makes a new one, so any thread may read the one it holds. What can fail: ConfigError
for a file that cannot be read, a value that is not accepted, or values that contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pybroker.config.definition import ConfigError, ConfigKey, ConfigValue, by_name
from pybroker.config.keys.cluster import CLUSTER_KEYS
from pybroker.config.keys.coordinator import COORDINATOR_KEYS
from pybroker.config.keys.group import GROUP_KEYS
from pybroker.config.keys.log import LOG_KEYS
from pybroker.config.keys.network import NETWORK_KEYS
from pybroker.config.keys.own import OWN_KEYS
from pybroker.config.keys.remote import REMOTE_KEYS
from pybroker.config.keys.security import SECURITY_KEYS
from pybroker.config.keys.throttle import THROTTLE_KEYS
from pybroker.config.listeners import Listener
from pybroker.config.properties import read_properties
from pybroker.config.rules import check_broker, resolve_listeners
from pybroker.config.values import ConfigValues

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

#: Kafka changes these while it runs; here sockets are opened, and their number is bounded, once, at start.
NEEDS_RESTART = frozenset({"listeners", "listener.security.protocol.map", "max.connections"})

_OVERRIDE = "--override"


@dataclass(frozen=True, slots=True)
class BrokerConfig(ConfigValues):
    """Every broker key with its effective value, and where each value comes from.

    Precedence (KIP-226): dynamic value of this broker, dynamic default of all brokers, static value, Kafka's default.
    The layers hold texts as they were given, unknown keys included.
    """

    static: Mapping[str, str] = field(default_factory=dict)
    #: For each static key the place that set it: file and line, or the command line option.
    origins: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    dynamic_broker: Mapping[str, str] = field(default_factory=dict)
    #: What the operator should be told once, in plain words.
    warnings: tuple[str, ...] = ()
    _values: Mapping[str, ConfigValue] = field(init=False, repr=False)
    #: Where clients connect; the controller's listeners are not among them.
    listeners: tuple[Listener, ...] = field(init=False)
    #: What clients are told to use; a host is empty where `listeners` has none either.
    advertised_listeners: tuple[Listener, ...] = field(init=False)
    #: The endpoint recorded for this node's controller.
    controller_listener: Listener = field(init=False)

    def __post_init__(self) -> None:
        warnings = list(self.warnings)
        object.__setattr__(self, "_values", self._merge(warnings))
        object.__setattr__(self, "warnings", tuple(dict.fromkeys(warnings)))
        own, advertised, controller = resolve_listeners(self)
        object.__setattr__(self, "listeners", own)
        object.__setattr__(self, "advertised_listeners", advertised)
        object.__setattr__(self, "controller_listener", controller)
        check_broker(self)

    @classmethod
    def load(cls, path: Path | str | None, overrides: Sequence[str] = ()) -> BrokerConfig:
        """The configuration of a server.properties file (None: all defaults) with `key=value` overrides.

        Raises ConfigError. Things that are odd but no error are in `warnings`.
        """
        static: dict[str, str] = {}
        origins: dict[str, str] = {}
        warnings: list[str] = []
        for item in read_properties(Path(path)) if path is not None else ():
            if item.key in static:
                warnings.append(f"{path}:{item.line}: {item.key} is set again; the last value counts")
            static[item.key] = item.value
            origins[item.key] = f"{path}:{item.line}"
        for text in overrides:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise ConfigError(
                    f"{_OVERRIDE} {text!r} is not key=value; write for example {_OVERRIDE} num.partitions=3"
                )
            static[key.strip()] = value.strip()
            origins[key.strip()] = _OVERRIDE
        _link_node_id(static, origins)
        warnings += _key_warnings(static, origins)
        return cls(static=static, origins=origins, warnings=tuple(warnings))

    def with_dynamic(self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> BrokerConfig:
        """This configuration with other dynamic values.

        A value that its key does not accept is left out, with a warning; `warnings` then has these alone. Raises
        ConfigError if values that are each accepted contradict each other.
        """
        return replace(self, dynamic_default=dict(dynamic_default), dynamic_broker=dict(dynamic_broker), warnings=())

    def _merge(self, warnings: list[str]) -> dict[str, ConfigValue]:
        values: dict[str, ConfigValue] = {name: key.default_value for name, key in BROKER_KEYS.items()}
        for name, text in self.static.items():
            if name in BROKER_KEYS:
                values[name] = BROKER_KEYS[name].parse(text, self.origins.get(name, ""))
        for layer, where in ((self.dynamic_default, "dynamic default"), (self.dynamic_broker, "dynamic value")):
            for name, text in layer.items():
                if name not in BROKER_KEYS:
                    continue
                if name in NEEDS_RESTART:
                    warnings.append(f"{where}: {name} is read at start only; set it in server.properties")
                    continue
                try:
                    values[name] = BROKER_KEYS[name].parse(text, where)
                except ConfigError as error:
                    warnings.append(f"{error}; ignored")
        return values

    def is_set(self, name: str) -> bool:
        """Whether any layer sets the key, so that its value is more than a default."""
        return name in self.static or name in self.dynamic_default or name in self.dynamic_broker

    @property
    def node_id(self) -> int:
        """The number of this node."""
        return self.get_int("node.id")

    @property
    def rack(self) -> str | None:
        """The rack of this broker, if it has one."""
        return self.get_str("broker.rack") if self._values["broker.rack"] is not None else None

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """The log directories, from log.dirs or else log.dir."""
        return tuple(Path(text) for text in self.get_list("log.dirs") or self.get_list("log.dir"))

    @property
    def metadata_log_dir(self) -> Path:
        """The directory that holds the metadata log."""
        if self._values["metadata.log.dir"] is None:
            return self.log_dirs[0]
        return Path(self.get_str("metadata.log.dir"))


def find_key(name: str) -> ConfigKey | None:
    """The key that `name` stands for, also when it is prefixed for one listener (KIP-103); None if Kafka has none."""
    if name in BROKER_KEYS:
        return BROKER_KEYS[name]
    if name.startswith("listener.name."):
        base = name.removeprefix("listener.name.").partition(".")[2]
        while base:
            if base in BROKER_KEYS:
                return replace(BROKER_KEYS[base], name=name, honoured=False)
            base = base.partition(".")[2]
    return None


def _link_node_id(static: dict[str, str], origins: dict[str, str]) -> None:
    """node.id and broker.id are two names of one number; whoever gives one means both."""
    for given, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if given in static and other not in static:
            static[other] = static[given]
            origins[other] = origins[given]


def _key_warnings(static: Mapping[str, str], origins: Mapping[str, str]) -> list[str]:
    """One warning per unknown key, and one for all that are known but without effect."""
    warnings = []
    idle = []
    for name in static:
        key = find_key(name)
        if key is None:
            warnings.append(f"{origins[name]}: {name} is not a known setting; it has no effect")
        elif not key.honoured:
            idle.append(name)
    if idle:
        warnings.append(f"accepted, no effect yet: {', '.join(sorted(idle))}")
    return warnings
