"""A configuration key: type, default, accepted values, and how its text is parsed and formatted as Kafka does.

Pure values without threads or I/O. Failures: ConfigError, whose message names the value's source, the key, the value
and the accepted values.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pybroker.values import Value

ConfigValue = bool | int | float | str | tuple[str, ...] | None

HIDDEN = "[hidden]"


class ConfigError(ValueError):
    """A configuration that cannot be used. The text is meant for the person who wrote the configuration.

    `keys` are the settings at fault, the one to look at first before the others; none when it is the file itself.
    `where`, if known, is the place, file and line or an option; the text begins with it.
    """

    def __init__(self, message: str, *keys: str, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.keys = keys
        self.where = where

    def located(self, origins: Mapping[str, str]) -> ConfigError:
        """The same at the place of the first key that has one, unless it has a place."""
        places = [origins[key] for key in self.keys if key in origins]
        return ConfigError(self.message, *self.keys, where=places[0]) if places and not self.where else self


class ConfigType(enum.IntEnum):
    """Kafka's types of configuration values; the numbers are those of the DescribeConfigs response (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(enum.Enum):
    """How likely a user is to need the key."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(enum.Enum):
    """Whether a key may change while the broker runs, and for how many brokers at once (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Validator(Protocol):
    """Judges a parsed value. `accepted` completes the sentence "accepted: …"."""

    @property
    def accepted(self) -> str: ...

    def accepts(self, value: ConfigValue) -> bool: ...


class Range(Value):
    """A number from `minimum` to `maximum`, both included; None is no bound. `extra` is one more accepted value."""

    minimum: float | None = None
    maximum: float | None = None
    extra: float | None = None

    @property
    def accepted(self) -> str:
        bounds = " and ".join(
            f"{words} {bound}"
            for words, bound in (("at least", self.minimum), ("at most", self.maximum))
            if bound is not None
        )
        return bounds if self.extra is None else f"{bounds}, or {self.extra}"

    def accepts(self, value: ConfigValue) -> bool:
        if not isinstance(value, int | float):
            return False
        if self.extra is not None and value == self.extra:
            return True
        above = self.minimum is None or value >= self.minimum
        return above and (self.maximum is None or value <= self.maximum)


class OneOf:
    """One of some words."""

    __slots__ = ("ignore_case", "values")

    def __init__(self, *values: str, ignore_case: bool = False) -> None:
        self.values = values
        self.ignore_case = ignore_case

    @property
    def accepted(self) -> str:
        return ", ".join(self.values)

    def accepts(self, value: ConfigValue) -> bool:
        if not isinstance(value, str):
            return False
        if self.ignore_case:
            return value.lower() in {word.lower() for word in self.values}
        return value in self.values


class ListOf:
    """A list without empty or repeated elements, of any words or of `words`. `empty`: it may have no elements."""

    __slots__ = ("empty", "words")

    def __init__(self, *words: str, empty: bool = True) -> None:
        self.words = words
        self.empty = empty

    @property
    def accepted(self) -> str:
        of_what = f" of {', '.join(self.words)}" if self.words else ""
        return f"a comma-separated list{of_what}, each once" + ("" if self.empty else ", at least one")

    def accepts(self, value: ConfigValue) -> bool:
        if not isinstance(value, tuple) or len(set(value)) != len(value) or not all(value):
            return False
        if self.words and not set(value) <= set(self.words):
            return False
        return self.empty or bool(value)


class Items(Value):
    """A list each element of which matches a regular expression; `accepted` says it in words."""

    pattern: str
    accepted: str

    def accepts(self, value: ConfigValue) -> bool:
        return isinstance(value, tuple) and all(re.fullmatch(self.pattern, item) for item in value)


class NonEmpty(Value):
    """A text with something in it."""

    accepted: str = "anything but an empty value"

    def accepts(self, value: ConfigValue) -> bool:
        return bool(value)


class ThrottledReplicas(Value):
    """`*`, or `partition:broker` pairs (KIP-73).

    Commas at the end are no entries, as in Java's split. Apache Kafka's pattern lets commas through elsewhere, too, and
    its brokers then fail to apply the topic's settings; they are refused here.
    """

    accepted: str = "*, or a list of partition:broker pairs such as 0:1,1:2"

    def accepts(self, value: ConfigValue) -> bool:
        if not isinstance(value, tuple):
            return False
        pairs = list(value)
        while pairs and not pairs[-1]:
            pairs.pop()
        return value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in pairs)


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_TYPE_WORDS = {
    ConfigType.BOOLEAN: "true, false",
    ConfigType.DOUBLE: "a number such as 0.5",
    ConfigType.LIST: "a comma-separated list",
    ConfigType.CLASS: "a class name",
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
#: As Kafka's ConfigTransformer has it.
_PROVIDED = re.compile(r"\$\{[^}]*:[^}]*\}")
NO_PROVIDERS = "A ${provider:…} is looked up by config.providers, which are not served: write the value itself"
#: The characters that Java's String.trim takes off: the space and every control character before it.
_BLANKS = "".join(map(chr, range(33)))
_SHOWN_CHARS = 100
_UNITS = (("bytes", "bytes"), ("ms", "milliseconds"), ("millis", "milliseconds"), ("seconds", "seconds"),
          ("secs", "seconds"), ("minutes", "minutes"), ("hours", "hours"), ("us", "microseconds"),
          ("per.second", "bytes per second"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of Kafka's configuration, or of ours. `default` is Kafka's text for it; None is Kafka's null."""

    name: str
    type: ConfigType
    default: str | None
    importance: Importance
    documentation: str
    validator: Validator | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    #: Not shown by DescribeConfigs unless somebody set it.
    internal: bool = False
    #: Set through AlterConfigs alone, never in server.properties.
    dynamic_only: bool = False
    #: False: accepted and kept, without effect on this broker.
    honoured: bool = False
    default_value: ConfigValue = field(init=False)

    def __post_init__(self) -> None:
        value = None if self.default is None else parse_value(self.type, self.default)
        object.__setattr__(self, "default_value", value)

    @property
    def sensitive(self) -> bool:
        """Whether values must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def unit(self) -> str | None:
        """The unit of the number, which Kafka's names carry at their end."""
        if self.type not in _BITS and self.type is not ConfigType.DOUBLE:
            return None
        matches = [unit for suffix, unit in _UNITS if self.name.endswith("." + suffix)]
        return matches[-1] if matches else None

    @property
    def accepted(self) -> str:
        """The values that the key takes, in words."""
        if self.type in _BITS:
            return self._accepted_integers()
        if self.validator is None:
            return _TYPE_WORDS.get(self.type, "text")
        if self.type is ConfigType.DOUBLE:
            return f"{_TYPE_WORDS[self.type]}, {self.validator.accepted}"
        return self.validator.accepted

    def _accepted_integers(self) -> str:
        """The bounds of the type and of the validator in one range."""
        limit = 1 << (_BITS[self.type] - 1)
        low, high, also = -limit, limit - 1, ""
        if isinstance(self.validator, Range):
            low = low if self.validator.minimum is None else int(self.validator.minimum)
            high = high if self.validator.maximum is None else int(self.validator.maximum)
            also = "" if self.validator.extra is None else f", or {int(self.validator.extra)}"
        return f"a whole number from {low} to {high}{also}"

    def parse(self, text: str, where: str = "") -> ConfigValue:
        """The value that `text` stands for. Raises ConfigError, which names `where` (file and line, or an option)."""
        try:
            value = parse_value(self.type, text)
        except ValueError:
            raise self.error(text, where) from None
        if self.validator is not None and not self.validator.accepts(value):
            raise self.error(text, where)
        return value

    def error(self, text: str, where: str = "") -> ConfigError:
        """The error for a value that is not accepted."""
        if len(text) > _SHOWN_CHARS:
            text = text[:_SHOWN_CHARS] + "…"
        shown = HIDDEN if self.sensitive else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        # Scripts search for Kafka's words, so these come first.
        message = f"Invalid value {shown} for configuration {self.name}; accepted: {self.accepted}"
        if names_provider(text):
            message += f". {NO_PROVIDERS}"
        return ConfigError(message, self.name, where=where)


def names_provider(text: str) -> bool:
    """Whether the text asks for a value that a provider of Kafka's config.providers looks up (KIP-297)."""
    return _PROVIDED.search(text) is not None


def parse_value(kind: ConfigType, text: str) -> ConfigValue:
    """`text` as a value of type `kind`, blanks around it dropped. Raises ValueError if it is none."""
    text = text.strip(_BLANKS)
    if kind is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if kind in _BITS:
        # int() also takes digits with underscores, which Kafka refuses.
        if len(text) > 32 or not _INTEGER.fullmatch(text):
            raise ValueError(text)
        number = int(text)
        limit = 1 << (_BITS[kind] - 1)
        if not -limit <= number < limit:
            raise ValueError(text)
        return number
    if kind is ConfigType.DOUBLE:
        if not _DOUBLE.fullmatch(text):
            raise ValueError(text)
        return float(text)
    if kind is ConfigType.LIST:
        return split_list(text)
    return text


def split_list(text: str) -> tuple[str, ...]:
    """The elements of a LIST value. Empty text is the empty list."""
    text = text.strip(_BLANKS)
    return tuple(item.strip(_BLANKS) for item in text.split(",")) if text else ()


def format_value(value: ConfigValue) -> str | None:
    """Kafka's text for a value of any type."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _format_double(value: float) -> str:
    """The text of Java's Double.toString: plain from 10^-3 up to 10^7, else d.dddE±n."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or 0) + len(whole) - 1
    digits = (whole + fraction).rstrip("0")
    stripped = digits.lstrip("0")
    if whole.strip("0") == "":
        power -= len(digits) - len(stripped)
    return f"{sign}{stripped[0]}.{stripped[1:] or '0'}E{power}"


def by_name(*tables: Sequence[ConfigKey]) -> dict[str, ConfigKey]:
    """All keys of the tables by name, in alphabetical order. A name that comes twice is a mistake in the tables."""
    keys = [key for table in tables for key in table]
    found = {key.name: key for key in sorted(keys, key=lambda key: key.name)}
    if len(found) != len(keys):
        raise AssertionError("a configuration key is defined twice")
    return found
