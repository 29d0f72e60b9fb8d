"""Strict readers of the text files of a log dir. A broker is lenient where it can; here every byte has to be as Apache
Kafka writes it, because text files have no checksum. Reads files; holds nothing.

`Damage` says what is wrong and at which byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pybroker.protocol.uuids import ZERO_UUID, uuid_from_text, uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files.meta_properties import DIRECTORY_ID, NODE_ID_KEYS, MetaProperties
from pybroker.storage.offline.small_files import read_whole

_NUMBER = r"(?:0|[1-9]\d{0,18})"
_EPOCH_LINE = re.compile(rf"({_NUMBER}) ({_NUMBER})")
_OFFSET_LINE = re.compile(rf"([A-Za-z0-9._-]{{1,249}}) ({_NUMBER}) ({_NUMBER})")
# Java escapes what could begin a value. So a line that has lost its end, and goes on with the next, is seen.
_PROPERTY = re.compile(r"([a-z.]+)=((?:[^=:#!\\]|\\[ -~])*)")
_PARTITION_METADATA = re.compile(r"version: (\d+)\ntopic_id: ([A-Za-z0-9_-]{22})\n?")
_QUORUM_KEYS = {
    0: {"clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters", "data_version"},
    1: {"leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version"},
}


class Damage(Exception):
    """The file is not as any broker writes it."""

    def __init__(self, text: str, position: int = 0) -> None:
        super().__init__(text)
        self.position = position


def _lines(path: Path, what: str) -> list[tuple[int, str]]:
    """(position, line) of a file whose every line ends with a newline; [] for an empty one."""
    data = read_whole(path)
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise Damage(f"not {what}: a byte that is no ASCII", error.start) from None
    if text and not text.endswith("\n"):
        raise Damage(f"not {what}: the last line has no end", len(text))
    found, position = [], 0
    for line in text.split("\n")[:-1]:
        found.append((position, line))
        position += len(line) + 1
    return found


def _entries(path: Path, what: str, line: re.Pattern[str]) -> list[tuple[int, re.Match[str]]]:
    """(position, match) of each entry of a checkpoint file: version 0, a count, then the entries."""
    lines = _lines(path, what)
    if not lines:
        return []
    if lines[0][1] != "0":
        raise Damage(f"version {lines[0][1]!r}, but only version 0 is known")
    if len(lines) < 2 or re.fullmatch(_NUMBER, lines[1][1]) is None:
        raise Damage("the number of entries is missing", 2)
    found = []
    for position, text in lines[2:]:
        match = line.fullmatch(text)
        if match is None:
            raise Damage(f"{text!r} is no entry of {what}", position)
        found.append((position, match))
    if len(found) != int(lines[1][1]):
        raise Damage(f"{lines[1][1]} entries are announced, {len(found)} are there", lines[1][0])
    return found


class EpochEntry(NamedTuple):
    """A leader epoch and its first offset; `position` of its line."""

    epoch: int
    start_offset: int
    position: int


def leader_epochs(path: Path) -> list[EpochEntry]:
    """leader-epoch-checkpoint (KIP-101)."""
    found = _entries(path, "a leader epoch checkpoint", _EPOCH_LINE)
    return [EpochEntry(int(match[1]), int(match[2]), position) for position, match in found]


class OffsetEntry(NamedTuple):
    """An offset of a partition; `position` of its line."""

    offset: int
    position: int


def offsets(path: Path) -> dict[tuple[str, int], OffsetEntry]:
    """An offset checkpoint of a log dir, by topic and partition."""
    found: dict[tuple[str, int], OffsetEntry] = {}
    for position, match in _entries(path, "an offset checkpoint", _OFFSET_LINE):
        key = match[1], int(match[2])
        if key in found:
            raise Damage(f"{match[1]}-{match[2]} is there twice", position)
        found[key] = OffsetEntry(int(match[3]), position)
    return found


def _uuid(text: str, position: int, what: str) -> bytes:
    try:
        value = uuid_from_text(text)
    except ValueError:
        raise Damage(f"{what} {text!r} is no uuid", position) from None
    if uuid_to_text(value) != text:
        raise Damage(f"{what} {text!r} is not how the uuid {uuid_to_text(value)} is written", position)
    return value


def partition_metadata(path: Path) -> bytes:
    """The topic id of partition.metadata (KIP-516)."""
    text = read_whole(path).decode("latin-1")
    match = _PARTITION_METADATA.fullmatch(text)
    if match is None:
        raise Damage("not 'version: 0' and 'topic_id: <uuid>'")
    if match[1] != "0":
        raise Damage(f"version {match[1]}, but only version 0 is known", match.start(1))
    topic_id = _uuid(match[2], match.start(2), "the topic id")
    if topic_id == ZERO_UUID:
        raise Damage("the topic id is all zeros, which no topic has", match.start(2))
    return topic_id


def meta_properties(path: Path) -> dict[str, str]:
    """meta.properties (KIP-631, KIP-858): its keys and values, the formats of all checked. Damage is what a broker
    refuses, and every line that no broker writes."""
    text = read_whole(path).decode("latin-1")
    try:
        found = MetaProperties.parse(text, "meta.properties")
    except StorageError as error:
        raise Damage(str(error)) from None
    # An editor may have ended all lines as on Windows; a broker reads them.
    end = "\r\n" if text.count("\n") == text.count("\r\n") else "\n"
    values: dict[str, str] = {}
    position = 0
    for line in text.split(end):
        if line.startswith("#"):
            if not line.isascii() or not line.isprintable():
                raise Damage("a comment has a character that cannot be printed", position)
        elif line or position < len(text):
            match = _PROPERTY.fullmatch(line)
            if match is None or match[1] in values:
                raise Damage(f"{line!r} is no line of meta.properties", position)
            values[match[1]] = match[2].replace("\\", "")
        position += len(line) + len(end)
    values.setdefault("version", str(found.version))
    if strange := values.keys() - {"version", NODE_ID_KEYS[found.version], "cluster.id", DIRECTORY_ID}:
        raise Damage(f"{', '.join(sorted(strange))} is no key of meta.properties of version {found.version}")
    if DIRECTORY_ID in values:
        _uuid(values[DIRECTORY_ID], 0, DIRECTORY_ID)
    return values


def node_id_of(properties: Mapping[str, str]) -> int:
    """The id of the node that a whole meta.properties names."""
    return int(properties[NODE_ID_KEYS[int(properties["version"])]])


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _json(path: Path, what: str) -> dict[str, Any]:
    data = read_whole(path)
    try:
        content = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Damage(f"not {what}: {error}") from None
    # Programs write it without blanks; so a byte that JSON would not mind is seen as well.
    if not isinstance(content, dict) or json.dumps(content, separators=(",", ":")).encode() != data.strip():
        raise Damage(f"not {what} as a broker writes it")
    return content


def quorum_state(path: Path) -> dict[str, Any]:
    """quorum-state (KIP-595, KIP-853)."""
    content = _json(path, "a quorum state")
    version = content.get("data_version")
    if version not in _QUORUM_KEYS or set(content) != _QUORUM_KEYS[version]:
        raise Damage(f"data_version {version!r} with the keys {', '.join(content)}")
    for key in ("leaderId", "leaderEpoch", "votedId"):
        if type(content[key]) is not int or content[key] < -1:
            raise Damage(f"{key} is {content[key]!r}")
    if version == 1:
        voted = _uuid(str(content["votedDirectoryId"]), 0, "votedDirectoryId")
        if content["votedId"] < 0 and voted != ZERO_UUID:
            raise Damage("votedDirectoryId is set, but nobody was voted for")
    return content


def clean_shutdown(path: Path) -> int:
    """The broker epoch of .kafka_cleanshutdown (KIP-966); -1 for the empty file of older releases."""
    if path.stat().st_size == 0:
        return -1
    content = _json(path, "a mark of a clean shutdown")
    if set(content) != {"version", "brokerEpoch"} or content["version"] != 0:
        raise Damage(f"version {content.get('version')!r} with the keys {', '.join(content)}")
    epoch = content["brokerEpoch"]
    if type(epoch) is not int or epoch < -1:
        raise Damage(f"brokerEpoch is {epoch!r}")
    return epoch
