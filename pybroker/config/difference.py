"""The differences between a configuration and the defaults. Pure functions; nothing secret leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_keys import BROKER_KEYS, base_name
from pybroker.config.definition import HIDDEN, ConfigError, ConfigKey, format_value
from pybroker.config.kept import parse_kept


@dataclass(frozen=True, slots=True)
class Difference:
    """A key with another value than its default. `where` is the place that sets it: file and line, or a layer."""

    name: str
    value: str | None
    default: str | None
    where: str

    def as_dict(self) -> dict[str, str | None]:
        """For JSON."""
        return {"name": self.name, "value": self.value, "default": self.default, "where": self.where}


def differences(config: BrokerConfig) -> list[Difference]:
    """The static settings that differ from their defaults, in alphabetical order. Unknown keys have no default."""
    return differences_of(config.static, config.origins)


def differences_of(values: Mapping[str, str | None], places: Mapping[str, str]) -> list[Difference]:
    """The same for texts by name, each with the place that sets it. None is a value that is not told."""
    found = []
    for name, text in sorted(values.items()):
        key = BROKER_KEYS.get(base_name(name))
        if key is None:
            continue
        value = HIDDEN if key.sensitive or text is None else _canonical(key, text)
        if value != key.default:
            found.append(Difference(name, value, key.default, places[name]))
    return found


def _canonical(key: ConfigKey, text: str) -> str | None:
    try:
        return format_value(parse_kept(key, text)[0])
    except ConfigError:
        return text
