"""`.pybroker_applied_metadata` of a log dir: up to where of the cluster's metadata its broker has acted.

A metadata log that ends before that has lost records. Without this file nobody could tell, and the partitions of the
topics in them would be taken for those of deleted ones. The file is written before a change of topics takes effect in
the dir, so no directory is there that a change behind the recorded offset made. All below that offset was durable in
the metadata log before. It names the dir as meta.properties does, so each of the two tells of damage to the other.

JSON with a checksum; Apache Kafka takes no notice of it. Blocks. Fails with `StorageError` and `OSError`.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from pybroker.protocol.uuids import uuid_from_text, uuid_to_text
from pybroker.storage.errors import StorageError, said_of
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.meta_properties import NEWEST_VERSION, MetaProperties
from pybroker.storage.files.regular_file import read_bytes
from pybroker.values import Value

FILE_NAME = ".pybroker_applied_metadata"
_VERSION = 1
#: Absent where it was written before version 0 could be opened.
_PROPERTIES_VERSION = "meta.properties.version"


class AppliedMetadata(Value):
    """All metadata below `end_offset` was applied; the last of them is of `epoch`."""

    cluster_id: str
    end_offset: int
    epoch: int

    @classmethod
    def read(cls, log_dir: Path) -> AppliedMetadata | None:
        """None where nothing was recorded yet. StorageError when the file makes no sense."""
        content = _read(log_dir)
        return None if content is None else cls(content["cluster.id"], content["end.offset"], content["epoch"])

    def write(self, log_dir: Path) -> None:
        """Durably."""
        properties = MetaProperties.read(log_dir)
        content: dict[str, Any] = {
            "version": _VERSION,
            "cluster.id": self.cluster_id,
            "end.offset": self.end_offset,
            "epoch": self.epoch,
        }
        if properties is not None and properties.has_directory_id:
            content["node.id"] = properties.node_id
            content["directory.id"] = uuid_to_text(properties.directory_id)
            content[_PROPERTIES_VERSION] = properties.version
        content["crc"] = _checksum(content)
        write_durably(log_dir / FILE_NAME, (json.dumps(content) + "\n").encode())

    def is_reached_by(self, other: AppliedMetadata) -> bool:
        """Whether metadata that go as far as `other` hold all that was applied here."""
        return other.cluster_id == self.cluster_id and other.end_offset >= self.end_offset and other.epoch >= self.epoch


def recorded_identity(log_dir: Path) -> MetaProperties | None:
    """The identity that meta.properties has to have; None where the file does not say it. StorageError when the file
    makes no sense."""
    content = _read(log_dir)
    if content is None or "directory.id" not in content:
        return None
    directory_id = uuid_from_text(content["directory.id"])
    version = content.get(_PROPERTIES_VERSION, NEWEST_VERSION)
    return MetaProperties(content["node.id"], content["cluster.id"], directory_id, version)


def _read(log_dir: Path) -> dict[str, Any] | None:
    path = log_dir / FILE_NAME
    try:
        content: dict[str, Any] = json.loads(read_bytes(path).decode())
        version, checksum = content["version"], content.pop("crc")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} is damaged: {said_of(error)}") from error
    if checksum != _checksum(content):
        raise StorageError(f"{path} is damaged: its checksum is wrong")
    if version != _VERSION:
        raise StorageError(f"{path}: version {version!r}, but only version {_VERSION} is known")
    return content


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
