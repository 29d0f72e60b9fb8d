"""Notices about the settings of a server.properties that are no errors: old names, dead keys, misspelt ones.

Pure functions over the settings as they were given. Each notice is said once, at start and by `pybroker config check`.
"""

from __future__ import annotations

import difflib
import enum
import ipaddress
from collections.abc import Mapping

from pybroker.config.broker_keys import BROKER_KEYS, find_key
from pybroker.config.definition import NO_PROVIDERS, names_provider, split_list
from pybroker.config.kept import raised_text
from pybroker.config.keys.retired import PLUGIN_KEYS, RETIRED_KEYS, RETIRED_TOPIC_KEYS, RetiredKey
from pybroker.config.keys.synonyms import SYNONYMS
from pybroker.config.keys.topic import TOPIC_KEYS
from pybroker.config.support import Support, support_of
from pybroker.values import Value

#: The value of broker.id that lets the broker make the number up.
GENERATED_ID = "-1"

_TOPIC_NAMES = frozenset(key.name for key in TOPIC_KEYS)
#: Among keys with the same meaning the first one that is set counts.
_OVERRIDING = (
    ("log.dirs", "log.dir"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_SIMILAR = 0.75
#: Prefixes of settings that are handed to classes as they are.
_HANDED_ON = ("config.providers.", "rlmm.config.", "rsm.config.")


class NoticeKind(enum.Enum):
    """The subject of a notice. The first nine want something done, the others are worth knowing."""

    REPEATED = "repeated"
    ENCODING = "encoding"
    PROVIDED = "provided"
    RAISED = "raised"
    UNKNOWN = "unknown"
    RETIRED = "retired"
    PLUGIN = "plugin"
    UNREACHABLE = "unreachable"
    UNOPENED = "unopened"
    OLD_NAME = "old name"
    OVERRIDDEN = "overridden"
    NO_EFFECT = "no effect"
    LOOPBACK = "loopback"

    @property
    def is_warning(self) -> bool:
        """Whether the file should be changed."""
        return self in (
            NoticeKind.REPEATED,
            NoticeKind.ENCODING,
            NoticeKind.PROVIDED,
            NoticeKind.RAISED,
            NoticeKind.UNKNOWN,
            NoticeKind.RETIRED,
            NoticeKind.PLUGIN,
            NoticeKind.UNREACHABLE,
            NoticeKind.UNOPENED,
        )


class Notice(Value):
    """One thing to say about one key. `where` is its place: file and line, or the command line option."""

    kind: NoticeKind
    key: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def notices_of(static: Mapping[str, str], origins: Mapping[str, str]) -> list[Notice]:
    """The notices about each key, in the order in which the keys were given."""
    overridden = {
        name: strongest
        for names in _OVERRIDING
        for strongest in [next((each for each in names if each in static), None)]
        for name in names
        if strongest is not None and name != strongest
    }
    found = []
    for name in static:
        about = _about(name, static)
        if about is None and name in overridden:
            about = NoticeKind.OVERRIDDEN, f"{name} gives way to {overridden[name]}, which is set as well"
        if about is not None:
            found.append(Notice(about[0], name, origins[name], about[1]))
        raised = raised_text(BROKER_KEYS[name], static[name]) if name in BROKER_KEYS else ""
        if raised:
            found.append(Notice(NoticeKind.RAISED, name, origins[name], raised))
        if names_provider(static[name]):
            text = f"{name} is taken as it stands. {NO_PROVIDERS}"
            found.append(Notice(NoticeKind.PROVIDED, name, origins[name], text))
    return found


def notices_of_listener(static: Mapping[str, str], origins: Mapping[str, str]) -> list[Notice]:
    """Without `listeners` the broker is on loopback; a warning where another setting wants others to connect."""
    if "listeners" in static:
        return []
    text = "listeners is not set, so the broker listens on 127.0.0.1:9092 alone"
    remedy = "write listeners=PLAINTEXT://:9092 to serve other machines as Apache Kafka does by default"
    advertised = [each for each in split_list(static.get("advertised.listeners", "")) if not _is_of_loopback(each)]
    if advertised:
        where = origins["advertised.listeners"]
        text += f", and clients are told {', '.join(advertised)}, where nothing answers"
        return [Notice(NoticeKind.UNREACHABLE, "advertised.listeners", where, f"{text}; {remedy}")]
    if split_list(static.get("process.roles", "")) == ("broker",):
        where = origins["process.roles"]
        text += ": brokers, controllers and clients on other machines cannot reach it"
        return [Notice(NoticeKind.UNREACHABLE, "process.roles", where, f"{text}; {remedy}")]
    return [Notice(NoticeKind.LOOPBACK, "listeners", "", f"{text}; {remedy}")]


def _is_of_loopback(listener: str) -> bool:
    host = listener.rpartition("://")[2].rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def told_at_start(notices: list[Notice]) -> list[str]:
    """The lines of the broker's log: one for each, but one for all that have no effect."""
    idle = sorted(each.key for each in notices if each.kind is NoticeKind.NO_EFFECT)
    # The ready line says that the broker is on loopback.
    untold = (NoticeKind.NO_EFFECT, NoticeKind.LOOPBACK)
    lines = [str(each) for each in notices if each.kind not in untold]
    if idle:
        lines.append(f"accepted without effect (`pybroker config check` says why): {', '.join(idle)}")
    return lines


def _about(name: str, static: Mapping[str, str]) -> tuple[NoticeKind, str] | None:
    if name == "broker.id":
        return _about_broker_id(static)
    if name == "listeners":
        return _about_controllers(static)
    key = find_key(name)
    if key is not None:
        standing = support_of(key)
        if standing.support is Support.NO_EFFECT:
            return NoticeKind.NO_EFFECT, f"{name} has no effect: {standing.reason}"
        return None
    if name in RETIRED_KEYS:
        return NoticeKind.RETIRED, _obituary(RETIRED_KEYS[name], static)
    if name in PLUGIN_KEYS:
        return NoticeKind.PLUGIN, f"{name} is without effect: {PLUGIN_KEYS[name]}"
    if name.startswith(_HANDED_ON):
        return NoticeKind.PLUGIN, f"{name} is without effect: it is meant for a Java class, and none is loaded"
    return NoticeKind.UNKNOWN, f"{name} is not a known setting; it has no effect{_advice(name)}"


def _about_controllers(static: Mapping[str, str]) -> tuple[NoticeKind, str] | None:
    """A combined node of Apache Kafka opens a listener for its controller; the one in this broker serves it alone."""
    controllers = {
        name.strip().upper() for name in static.get("controller.listener.names", "CONTROLLER").split(",")
    } - {""}
    named = [item.partition(":")[0].strip().upper() for item in static["listeners"].split(",")]
    unopened = ", ".join(name for name in named if name in controllers)
    if not unopened:
        return None
    text = (
        f"{unopened} in listeners is not opened: the controller in this broker answers this broker alone. Remove it "
        "from listeners, or leave it there for an Apache Kafka that opens this directory again"
    )
    return NoticeKind.UNOPENED, text


def _about_broker_id(static: Mapping[str, str]) -> tuple[NoticeKind, str] | None:
    if static["broker.id"] == GENERATED_ID:
        text = "broker.id=-1 asked for a number to be made up, which is no more; set node.id"
    elif "node.id" in static:
        text = "broker.id is the old name of node.id, which is set as well; remove the line"
    else:
        text = f"broker.id is the old name of node.id; write node.id={static['broker.id']}"
    return NoticeKind.OLD_NAME, text


def _obituary(retired: RetiredKey, static: Mapping[str, str]) -> str:
    """The fate of the key, and the key to write instead."""
    text = f"{retired.name} is without effect (Kafka had it until {retired.until}): {retired.fate}"
    present = [name for name in retired.replacements if name in static]
    if present:
        return f"{text}; {' and '.join(present)}, which is set, stands for it: remove the line"
    if not retired.replacements:
        return f"{text}; remove the line"
    address = _address(retired.replacements[0], static)
    return f"{text}; write {address or ' and '.join(retired.replacements)} for it"


def _address(replacement: str, static: Mapping[str, str]) -> str | None:
    """The listener that stands for the keys of before, which had host and port apart."""
    host, port = static.get("host.name", ""), static.get("port", "9092")
    if replacement == "advertised.listeners":
        host, port = static.get("advertised.host.name", host), static.get("advertised.port", port)
    elif replacement != "listeners":
        return None
    return f"{replacement}=PLAINTEXT://{host}:{port}"


def _advice(name: str) -> str:
    if name in _TOPIC_NAMES:
        behind = SYNONYMS.get(name)
        instead = f"; {behind[0].name} is what topics take it from" if behind else ""
        return f" here: it belongs to a topic{instead}"
    if name in RETIRED_TOPIC_KEYS:
        return f" here: it belonged to a topic until Kafka {RETIRED_TOPIC_KEYS[name].until}"
    similar = similar_key(name)
    return "" if similar is None else f"; is {similar} meant?"


def similar_key(name: str) -> str | None:
    """The key that is most likely meant by a name that is none."""
    names = [key.name for key in BROKER_KEYS.values() if not key.internal]
    matches = difflib.get_close_matches(name.lower().replace("_", "."), names, 1, _SIMILAR)
    return matches[0] if matches else None
