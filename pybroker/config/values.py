"""Typed access to configuration values by Kafka's name. Read-only, so any thread may use it."""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.config.definition import ConfigValue


class ConfigValues:
    """Values by name. Each accessor raises KeyError for a name that is no key, TypeError for a key of another type."""

    __slots__ = ()
    _values: Mapping[str, ConfigValue]

    def get(self, name: str) -> ConfigValue:
        """The effective value of any key."""
        return self._values[name]

    def get_int(self, name: str) -> int:
        """The value of an INT, LONG or SHORT key that is not null."""
        value = self._values[name]
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} is not a whole number: {value!r}")
        return value

    def get_float(self, name: str) -> float:
        """The value of a DOUBLE key."""
        value = self._values[name]
        if not isinstance(value, float):
            raise TypeError(f"{name} is not a DOUBLE: {value!r}")
        return value

    def get_bool(self, name: str) -> bool:
        """The value of a BOOLEAN key."""
        value = self._values[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is not a BOOLEAN: {value!r}")
        return value

    def get_str(self, name: str) -> str:
        """The value of a STRING, CLASS or PASSWORD key that is not null."""
        value = self._values[name]
        if not isinstance(value, str):
            raise TypeError(f"{name} is not a text: {value!r}")
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        """The elements of a LIST key; null is the empty list."""
        value = self._values[name]
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise TypeError(f"{name} is not a LIST: {value!r}")
        return value
