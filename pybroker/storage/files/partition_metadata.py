"""`partition.metadata`: the topic id of a partition directory (KIP-516), format version 0."""

from pathlib import Path

from pybroker.protocol.uuids import ZERO_UUID, uuid_from_text, uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.regular_file import read_text

FILE_NAME = "partition.metadata"


def write(partition_dir: Path, topic_id: bytes) -> None:
    """Write the 16-byte `topic_id` durably."""
    write_durably(partition_dir / FILE_NAME, f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode())


def read(partition_dir: Path) -> bytes | None:
    """The topic id (16 bytes), None when the file is absent. StorageError when it makes no sense."""
    path = partition_dir / FILE_NAME
    try:
        lines = read_text(path).splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: not UTF-8: {error}") from error
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        topic_id = uuid_from_text(values["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise StorageError(f"{path}: the line 'topic_id: <uuid>' is missing or malformed") from error
    if values.get("version", "").strip() != "0":
        raise StorageError(f"{path}: version {values.get('version')!r}, but only version 0 is known")
    if topic_id == ZERO_UUID:
        raise StorageError(f"{path}: the topic id is all zeros, which no topic has")
    return topic_id
