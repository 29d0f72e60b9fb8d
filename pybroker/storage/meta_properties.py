"""`meta.properties`: which node and cluster a log dir belongs to (KIP-631, KIP-858).

Version 1 has the keys `node.id`, `cluster.id` and, since KIP-858, `directory.id`. Uuids are 16 bytes here and Kafka's
base64url text in the file.
"""

from __future__ import annotations

import re
from pathlib import Path

from pybroker.config.definition import ConfigError
from pybroker.config.properties import parse_properties
from pybroker.protocol.uuids import uuid_from_text, uuid_to_text
from pybroker.storage.atomic import write_durably
from pybroker.storage.errors import StorageError
from pybroker.storage.regular_file import read_text
from pybroker.values import Value

FILE_NAME = "meta.properties"
_VERSION = "1"


class MetaProperties(Value):
    """Identity of one log dir. `cluster_id` is text (any text is legal in Kafka), `directory_id` 16 bytes."""

    node_id: int
    cluster_id: str
    directory_id: bytes

    @classmethod
    def read(cls, log_dir: Path) -> MetaProperties | None:
        """The identity of `log_dir`, None when it has none yet. StorageError when the file makes no sense."""
        path = log_dir / FILE_NAME
        try:
            text = read_text(path, "latin-1")
        except FileNotFoundError:
            return None
        try:
            values = {item.key: item.value for item in parse_properties(text, str(path))}
        except ConfigError as error:
            raise StorageError(str(error)) from error
        version = values.get("version")
        if version is None:
            raise StorageError(f"{path} is damaged, it has no version: restore the file from a backup")
        if version != _VERSION:
            raise StorageError(
                f"{path}: version={version!r}, but only version={_VERSION} (KRaft) can be read; a directory of the "
                "ZooKeeper era must first be migrated by Apache Kafka 3.9"
            )
        missing = [key for key in ("node.id", "cluster.id", "directory.id") if not values.get(key)]
        if missing:
            raise StorageError(
                f"{path}: {', '.join(missing)} is missing: restore the file from a backup, or write the lines as they "
                "were"
            )
        try:
            return cls(int(values["node.id"]), values["cluster.id"], uuid_from_text(values["directory.id"]))
        except ValueError as error:
            raise StorageError(f"{path}: node.id or directory.id is malformed: {error}") from error

    def write(self, log_dir: Path) -> None:
        """Write the file durably into `log_dir`, which must exist."""
        text = (
            f"version={_VERSION}\nnode.id={self.node_id}\ncluster.id={_escape(self.cluster_id)}\n"
            f"directory.id={uuid_to_text(self.directory_id)}\n"
        )
        write_durably(log_dir / FILE_NAME, text.encode("ascii"))

    def check(self, log_dir: Path, node_id: int, cluster_id: str | None = None) -> None:
        """Raise StorageError unless this dir belongs to `node_id` and, when given, to `cluster_id`."""
        if self.node_id != node_id:
            raise StorageError(
                f"{log_dir / FILE_NAME} says node.id={self.node_id}, but the setting node.id is {node_id}: set node.id "
                "to the former, or log.dirs to another directory"
            )
        if cluster_id is not None and self.cluster_id != cluster_id:
            raise StorageError(
                f"{log_dir / FILE_NAME} says cluster.id={self.cluster_id}, but the other log.dirs belong to cluster "
                f"{cluster_id}: log dirs of different clusters cannot be mixed"
            )


def _escape(text: str) -> str:
    """`text` with each unit of UTF-16 as `\\uXXXX` that Java, or its line ends, could take for anything but itself."""
    return re.sub(
        r"[^\w.+-]", lambda found: re.sub("(....)", r"\\u\1", found[0].encode("utf-16-be").hex()), text, flags=re.A
    )
