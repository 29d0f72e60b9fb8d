"""Listener settings as values: `listeners`, `advertised.listeners` and `listener.security.protocol.map`.

Pure functions. Failures: ConfigError for text that is no listener, a name or port used twice, a name without a security
protocol, or a protocol that is not served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pybroker.config.definition import ConfigError, split_list
from pybroker.values import Value

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS = ("PLAINTEXT",)
MOST_PORT = 65_535

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^:\[\]/]*)):(?P<port>[0-9]{1,5})"
)


class Listener(Value):
    """One address with the name that maps it to a security protocol. An empty host is every interface."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


def format_address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int] | None:
    """Host, without the brackets of an IPv6 address, and port of host:port; None for what is none."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > MOST_PORT:
        return None
    return host.strip("[]"), int(port)


def parse_protocol_map(text: str, key: str = "listener.security.protocol.map") -> dict[str, str]:
    """Listener name (upper case) → security protocol. Raises ConfigError for anything but NAME:PROTOCOL pairs."""
    found: dict[str, str] = {}
    for item in split_list(text):
        name, colon, protocol = (part.strip().upper() for part in item.partition(":"))
        if not colon or not name or protocol not in SECURITY_PROTOCOLS:
            accepted = f"NAME:PROTOCOL with a protocol of {', '.join(SECURITY_PROTOCOLS)}"
            raise ConfigError(f"{key} has the item {item!r}; accepted: {accepted}", key)
        if found.setdefault(name, protocol) != protocol:
            raise ConfigError(f"{key} gives listener {name} two protocols; keep one", key)
    return found


def parse_listeners(key: str, items: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners of setting `key`, each with its protocol from `protocols` (see parse_protocol_map)."""
    found: list[Listener] = []
    for item in items:
        match = _LISTENER.fullmatch(item)
        if match is None or int(match["port"]) > MOST_PORT:
            raise ConfigError(
                f"{key} has the item {item!r}; accepted: NAME://host:port, with a port from 0 to 65535", key
            )
        name = match["name"].upper()
        if name not in protocols:
            raise ConfigError(
                f"{key}: listener {name} has no security protocol; "
                f"add {name}:PLAINTEXT to listener.security.protocol.map",
                key,
            )
        found.append(Listener(name, match["v6"] or match["host"] or "", int(match["port"]), protocols[name]))
    names = [listener.name for listener in found]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(f"{key} has listener {repeated[0]} twice; give each listener a name of its own", key)
    return tuple(found)


def check_ports_differ(key: str, listeners: Iterable[Listener]) -> None:
    """Raises ConfigError if two listeners share address and port. Port 0 is a free port, so never shared."""
    seen: dict[tuple[str, int], str] = {}
    for listener in listeners:
        address = (listener.host, listener.port)
        if listener.port and address in seen:
            raise ConfigError(
                f"{key}: listeners {seen[address]} and {listener.name} share port {listener.port}; give each its own",
                key,
            )
        seen[address] = listener.name


def check_served(key: str, listeners: Iterable[Listener]) -> None:
    """Raises ConfigError for a listener whose security protocol this broker does not serve."""
    for listener in listeners:
        if listener.security_protocol not in SERVED_PROTOCOLS:
            raise ConfigError(
                f"{key}: listener {listener.name} stands for {listener.security_protocol}, which is not served; "
                f"accepted: {', '.join(SERVED_PROTOCOLS)} (change listener.security.protocol.map)",
                key,
                "listener.security.protocol.map",
            )
