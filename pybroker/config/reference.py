"""The reference of all settings, made from their tables: docs/configuration.md, or the same as JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pybroker.config.broker import COUNTS_AT_START, NEEDS_RESTART
from pybroker.config.definition import ConfigKey, UpdateMode
from pybroker.config.keys.cluster import CLUSTER_KEYS
from pybroker.config.keys.coordinator import COORDINATOR_KEYS
from pybroker.config.keys.group import GROUP_KEYS
from pybroker.config.keys.log import LOG_KEYS
from pybroker.config.keys.network import NETWORK_KEYS
from pybroker.config.keys.own import OWN_KEYS
from pybroker.config.keys.remote import REMOTE_KEYS
from pybroker.config.keys.retired import PLUGIN_KEYS, RETIRED_KEYS, RETIRED_TOPIC_KEYS, RetiredKey
from pybroker.config.keys.security import SECURITY_KEYS
from pybroker.config.keys.synonyms import SYNONYMS
from pybroker.config.keys.throttle import THROTTLE_KEYS
from pybroker.config.support import Support, support_of
from pybroker.config.topic import TOPIC_KEYS
from pybroker.protocol.kafka_version import KAFKA_VERSION

_READ_AT_SIGHUP = ("pybroker.log.format", "pybroker.log.level")
_LARGEST = {
    "9223372036854775807": "2^63 - 1",
    "9223372036854775808": "2^63",
    "2147483647": "2^31 - 1",
    "2147483648": "2^31",
    "1.7976931348623157E308": "1.8E308",
}

_SECTIONS: Sequence[tuple[str, str, Iterable[ConfigKey]]] = (
    ("pybroker's own", "No Kafka has these.", OWN_KEYS),
    (
        "Topics",
        "Set when a topic is created, or changed later. Other settings have the broker's value.",
        [*TOPIC_KEYS.values()],
    ),
    ("Logs", "", LOG_KEYS),
    ("Network, threads and metrics", "", NETWORK_KEYS),
    ("Groups", "", GROUP_KEYS),
    ("Node, controller and replication", "", CLUSTER_KEYS),
    ("Transactions and share state", "", COORDINATOR_KEYS),
    ("Security", "", SECURITY_KEYS),
    ("Tiered storage", "", REMOTE_KEYS),
    ("Throttles", "Set dynamically alone (`kafka-configs --alter`), never in a file.", THROTTLE_KEYS),
)

_INTRODUCTION = f"""\
<!-- Made by `pybroker config docs`; change the tables under pybroker/config/keys/ instead. -->

# Settings

Every setting of Apache Kafka {KAFKA_VERSION} for brokers and topics, and pybroker's own. Names, types, defaults and
accepted values are Kafka's. [configuring.md](configuring.md) says where settings are written and how they change.

*here* tells the standing of a setting. **yes**: it has its effect. **no**: it is accepted without one. **refused**: the
broker does not start with it, because its user relies on it. The number leads to the reason below the table.

*changes* says when a new value counts. **start**: the next time the broker starts. **live**: at once, as the default of
all brokers or of one. **per broker**: at once, for one broker. **SIGHUP**: when the process gets that signal.

| settings | yes | no | refused |
|---|---|---|---|
"""


def as_markdown() -> str:
    """The whole page."""
    tables = [_section(*section) for section in _SECTIONS]
    return _INTRODUCTION + _counts() + "\n" + "\n".join([*tables, _retired_section()])


def as_rows(names: Sequence[str] = ()) -> list[dict[str, object]]:
    """One object per setting, of `names` or of all: the facts, and what becomes of it. KeyError for an unknown name."""
    rows = [(title == "Topics", key) for title, _, keys in _SECTIONS for key in keys]
    known = {key.name for _, key in rows}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise KeyError(unknown[0])
    return [_row(key, of_topic) for of_topic, key in rows if not names or key.name in names]


def _row(key: ConfigKey, of_topic: bool) -> dict[str, object]:
    standing = support_of(key)
    return {
        "name": key.name,
        "of": "topic" if of_topic else "broker",
        "type": key.type.name.lower(),
        "default": None if key.sensitive else key.default,
        "accepted": key.accepted,
        "importance": key.importance.value,
        "changes": _changes(key),
        "here": standing.support.value,
        "reason": standing.reason or None,
        "synonyms": [each.name for each in SYNONYMS.get(key.name, ())] if of_topic else [],
        "documentation": key.documentation,
    }


def _changes(key: ConfigKey) -> str:
    if key.name in _READ_AT_SIGHUP:
        return "start, SIGHUP"
    if key.update_mode is UpdateMode.READ_ONLY or key.name in NEEDS_RESTART | COUNTS_AT_START:
        return "start"
    return "live" if key.update_mode is UpdateMode.CLUSTER_WIDE else "per broker"


def _counts() -> str:
    lines = []
    for title, _, keys in _SECTIONS:
        found = [support_of(key).support for key in keys]
        anchor = "".join(each for each in title.lower().replace(" ", "-") if each.isalnum() or each == "-")
        counts = " | ".join(str(found.count(each)) for each in Support)
        lines.append(f"| [{title}](#{anchor}) | {counts} |\n")
    return "".join(lines)


def _section(title: str, about: str, keys: Iterable[ConfigKey]) -> str:
    reasons: dict[str, int] = {}
    lines = [f"## {title}\n\n", f"{about}\n\n" if about else ""]
    lines.append("| setting | what it says | type: accepted | default | importance | changes | here |\n")
    lines.append("|---|---|---|---|---|---|---|\n")
    for key in keys:
        standing = support_of(key)
        here = {Support.SUPPORTED: "yes", Support.NO_EFFECT: "no", Support.REFUSED: "refused"}[standing.support]
        if standing.reason:
            here += f" ({reasons.setdefault(standing.reason, len(reasons) + 1)})"
        cells = (f"`{key.name}`", key.documentation, f"{key.type.name.lower()}: {key.accepted}", _default(key))
        row = (*map(_cell, cells), key.importance.value, _changes(key), here)
        lines.append(f"| {' | '.join(row)} |\n")
    if reasons:
        lines.append("\n" + "".join(f"{number}. {reason}\n" for reason, number in reasons.items()))
    return "".join(lines)


def _default(key: ConfigKey) -> str:
    if key.default is None:
        return "none"
    return f"`{_LARGEST.get(key.default, key.default)}`" if key.default else "empty"


def _cell(text: str) -> str:
    for number, words in _LARGEST.items():
        text = text.replace(number, words)
    return text.replace("|", "\\|")


def _retired_section() -> str:
    lines = [
        "## Settings of before\n\n",
        "Kafka had these up to the version named, most of them for ZooKeeper. A file that has them is accepted; each\n",
        "is told at start and by `pybroker config check`, and has no effect.\n\n",
        "| setting | until | what became of it | instead |\n|---|---|---|---|\n",
    ]
    lines += [_obituary(key, "") for key in RETIRED_KEYS.values()]
    lines += [_obituary(key, " (topic)") for key in RETIRED_TOPIC_KEYS.values()]
    lines += [f"| `{name}` | | {_cell(text)} | |\n" for name, text in PLUGIN_KEYS.items()]
    return "".join(lines)


def _obituary(key: RetiredKey, of: str) -> str:
    instead = ", ".join(f"`{name}`" for name in key.replacements)
    return f"| `{key.name}`{of} | {key.until} | {_cell(key.fate)} | {instead} |\n"
