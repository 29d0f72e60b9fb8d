"""The broker's configuration: server.properties, command line overrides, and dynamic values on top.

A BrokerConfig is a value: a change makes a new one, so any thread may read the one it holds. Failures: ConfigError for
a file that cannot be read, a value that is not accepted, or values that contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pybroker.config.broker_keys import BROKER_KEYS
from pybroker.config.definition import ConfigError, ConfigValue
from pybroker.config.kept import parse_kept
from pybroker.config.listeners import Listener
from pybroker.config.notices import GENERATED_ID, Notice, NoticeKind, notices_of, notices_of_listener, told_at_start
from pybroker.config.properties import looks_like_utf8, read_properties
from pybroker.config.rules import check_broker, resolve_listeners
from pybroker.config.values import ConfigValues

#: Kafka can change these settings while it runs. Here they are read once, when the sockets are opened at start.
NEEDS_RESTART = frozenset({"listeners", "listener.security.protocol.map"})

#: These settings may be changed while the broker runs, as in Kafka, but the change counts from the next start on.
COUNTS_AT_START = frozenset({"num.recovery.threads.per.data.dir"})

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
    #: Warnings for the operator in plain words. Each is logged once.
    warnings: tuple[str, ...] = ()
    _values: Mapping[str, ConfigValue] = field(init=False, repr=False)
    #: Where clients connect; the controller's listeners are not among them.
    listeners: tuple[Listener, ...] = field(init=False)
    #: The addresses that clients are told to use. A host is empty if `listeners` has no host either.
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

        Raises ConfigError. `warnings` has what is odd but no error.
        """
        static, origins, notices = read_static(path, overrides)
        notices += [*notices_of(static, origins), *notices_of_listener(static, origins)]
        warnings = told_at_start(notices)
        linked = link_node_id(static, origins)
        try:
            return cls(static=static, origins=origins, warnings=tuple(warnings))
        except ConfigError as error:
            raise named_as_given(error, linked).located(origins) from None

    def with_dynamic(self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> BrokerConfig:
        """This configuration with the dynamic values replaced.

        A dynamic value that its key does not accept is ignored, and the result's `warnings` has a text about it. The
        warnings of this configuration are not repeated. Raises ConfigError if valid values contradict each other.
        """
        return replace(self, dynamic_default=dict(dynamic_default), dynamic_broker=dict(dynamic_broker), warnings=())

    def _merge(self, warnings: list[str]) -> dict[str, ConfigValue]:
        values: dict[str, ConfigValue] = {name: key.default_value for name, key in BROKER_KEYS.items()}
        for name, text in self.static.items():
            if name in BROKER_KEYS:
                # No warning about a value raised to its bound: `load` has a notice of it.
                values[name], _ = parse_kept(BROKER_KEYS[name], text, self.origins.get(name, ""))
        for layer, where in ((self.dynamic_default, "dynamic default"), (self.dynamic_broker, "dynamic value")):
            for name, text in layer.items():
                if name not in BROKER_KEYS:
                    continue
                if name in NEEDS_RESTART:
                    warnings.append(f"{where}: {name} is read at start only; set it in server.properties")
                    continue
                try:
                    values[name], raised = parse_kept(BROKER_KEYS[name], text, where)
                except ConfigError as error:
                    warnings.append(f"{error}; ignored")
                    continue
                if raised:
                    warnings.append(f"{where}: {raised}")
        return values

    def is_set(self, name: str) -> bool:
        """Whether any layer sets the key, so that its value is more than a default."""
        return name in self.static or name in self.dynamic_default or name in self.dynamic_broker

    @property
    def node_id(self) -> int:
        """The number of this node."""
        return self.get_int("node.id")

    @property
    def joins_quorum(self) -> bool:
        """Whether this node is a broker alone, whose metadata is kept by controllers elsewhere."""
        return set(self.get_list("process.roles")) == {"broker"}

    @property
    def rack(self) -> str | None:
        """The rack of this broker, if it has one."""
        return self.get_str("broker.rack") if self._values["broker.rack"] is not None else None

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        if self._values["inter.broker.listener.name"] is not None:
            return self.get_str("inter.broker.listener.name").upper()
        return self.get_str("security.inter.broker.protocol")

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


def read_static(
    path: Path | str | None, overrides: Sequence[str]
) -> tuple[dict[str, str], dict[str, str], list[Notice]]:
    """Reads the settings of the file and the command line. Returns them, the place that set each, and notices: about
    settings that were given twice, and about values that look like UTF-8.

    Raises ConfigError for a file or an override that cannot be read.
    """
    static: dict[str, str] = {}
    origins: dict[str, str] = {}
    notices = []
    for item in read_properties(Path(path)) if path is not None else ():
        where = f"{path}:{item.line}"
        if item.key in static:
            text = f"{item.key} is set again; the last value counts"
            notices.append(Notice(NoticeKind.REPEATED, item.key, where, text))
        if looks_like_utf8(item.value):
            text = (
                f"{item.key} is read as {item.value[:100]!r}: bytes are ISO 8859-1 to Java, and so here; "
                "write other characters as \\uXXXX, or begin the file with a byte order mark"
            )
            notices.append(Notice(NoticeKind.ENCODING, item.key, where, text))
        static[item.key] = item.value
        origins[item.key] = where
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{_OVERRIDE} {text!r} is not key=value; write for example {_OVERRIDE} num.partitions=3")
        static[key.strip()] = value.strip()
        origins[key.strip()] = _OVERRIDE
    return static, origins, notices


def link_node_id(static: dict[str, str], origins: dict[str, str]) -> dict[str, str]:
    """node.id and broker.id are two names of one setting: if only one is set, set the other to its value. Returns the
    name that was set here, with the name that was given."""
    for given, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if given in static and other not in static and static[given] != GENERATED_ID:
            static[other] = static[given]
            origins[other] = origins[given]
            return {other: given}
    return {}


def named_as_given(error: ConfigError, linked: Mapping[str, str]) -> ConfigError:
    """The same error, of the setting that was given where it names the one that was only linked to it."""
    for other, given in linked.items():
        if other in error.keys:
            keys = dict.fromkeys(linked.get(key, key) for key in error.keys)
            return ConfigError(error.message.replace(other, given), *keys, where=error.where)
    return error
