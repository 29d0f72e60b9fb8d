"""Kafka's offset checkpoint files of a log dir, format version 0.

Text: the version, the number of entries, then one `topic partition offset` per line. A log dir has four:
`recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (high watermarks), `log-start-offset-checkpoint` and
`cleaner-offset-checkpoint`. Kafka creates them empty, so an empty file is a file without entries.
"""

from collections.abc import Mapping
from pathlib import Path

from pybroker.storage.errors import StorageError
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.regular_file import read_text

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"

_VERSION = 0

TopicPartition = tuple[str, int]


def read(path: Path) -> dict[TopicPartition, int]:
    """Offsets by (topic, partition); {} when the file is absent or empty. StorageError names the bad line."""
    try:
        lines = read_text(path).splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: not an offset checkpoint: {error}") from error
    if not lines:
        return {}
    if lines[0].strip() != str(_VERSION):
        raise StorageError(f"{path}: line 1: version {lines[0]!r}, but only version {_VERSION} is known")
    if len(lines) < 2 or not lines[1].strip().isdecimal():
        raise StorageError(f"{path}: line 2: the number of entries is missing")
    expected_count = int(lines[1])
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines[2:], start=3):
        parts = line.split()
        try:
            topic, partition, offset = parts[0], int(parts[1]), int(parts[2])
        except (IndexError, ValueError):
            raise StorageError(f"{path}: line {number}: expected 'topic partition offset', found {line!r}") from None
        if len(parts) != 3 or partition < 0 or offset < 0:
            raise StorageError(f"{path}: line {number}: expected 'topic partition offset', found {line!r}")
        offsets[topic, partition] = offset
    if len(offsets) != expected_count:
        raise StorageError(f"{path}: {expected_count} entries announced in line 2, {len(offsets)} found")
    return offsets


def content(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of a file with these offsets, none of them negative."""
    lines = [str(_VERSION), str(len(offsets))]
    for (topic, partition), offset in offsets.items():
        assert offset >= 0, f"negative offset {offset} of {topic}-{partition}"
        lines.append(f"{topic} {partition} {offset}")
    return ("\n".join(lines) + "\n").encode()


def write(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file durably. Offsets must not be negative."""
    write_durably(path, content(offsets))
