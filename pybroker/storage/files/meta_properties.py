"""`meta.properties`: which node and cluster a log dir belongs to (KIP-631, KIP-858).

Version 1 has the keys `node.id` and `cluster.id`. Version 0 is of clusters that came from ZooKeeper, which keep it for
good; there `node.id` is named `broker.id`. In both, `directory.id` came with Kafka 3.7. Uuids are 16 bytes here and
Kafka's base64url text in the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pybroker.config.definition import ConfigError
from pybroker.config.properties import parse_properties
from pybroker.protocol.uuids import ZERO_UUID, is_reserved, random_uuid, uuid_from_text, uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.regular_file import read_text
from pybroker.values import Value

FILE_NAME = "meta.properties"
DIRECTORY_ID = "directory.id"
NODE_ID_KEYS: Mapping[int, str] = {0: "broker.id", 1: "node.id"}
"""The key that names the node, by version."""
NEWEST_VERSION = 1
#: A file without the key is of this one.
_OLDEST_VERSION = "0"
_LINE_ENDS = ("\n", "\r")
_RESTORE = "restore the file from a backup, or write the lines as they were"


class MetaProperties(Value):
    """Identity of one log dir. `cluster_id` is text (any text is legal in Kafka), `directory_id` 16 bytes. It is
    `ZERO_UUID`, as of an unassigned directory, where the file does not have one."""

    node_id: int
    cluster_id: str
    directory_id: bytes
    version: int = NEWEST_VERSION

    @classmethod
    def read(cls, log_dir: Path) -> MetaProperties | None:
        """The identity of `log_dir`, None when it has none yet. StorageError when the file makes no sense."""
        path = log_dir / FILE_NAME
        try:
            text = read_text(path, "latin-1")
        except FileNotFoundError:
            return None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> MetaProperties:
        """The identity that `text` states; `source` is the name that errors carry. StorageError when it makes no
        sense. A broker and `pybroker log check` read it alike."""
        try:
            items = parse_properties(text, source)
        except ConfigError as error:
            raise StorageError(str(error)) from error
        values = {item.key: item.value for item in items}
        version = values.get("version", _OLDEST_VERSION)
        node_id_key = {str(number): key for number, key in NODE_ID_KEYS.items()}.get(version)
        if node_id_key is None:
            raise StorageError(
                f"{source}: version={version!r}, but only the versions 0 and 1 are known: start the program that wrote "
                f"the file, or {_RESTORE}"
            )
        missing = [key for key in (node_id_key, "cluster.id") if not values.get(key)]
        if not values.get(DIRECTORY_ID) and (DIRECTORY_ID in text or not text.endswith(_LINE_ENDS)):
            # A part of the file is lost. Another id than the one that was would hide its partitions.
            missing.append(DIRECTORY_ID)
        if missing:
            raise StorageError(f"{source} is damaged, {', '.join(missing)} is missing: {_RESTORE}")
        if not text.endswith(_LINE_ENDS) and items[-1].key != DIRECTORY_ID:
            # A directory id says by its length whether it is whole.
            raise StorageError(
                f"{source} is damaged, the line of {items[-1].key} has no end, so a part of it may be lost: {_RESTORE}"
            )
        # As Java reads a number, but for a plus sign. Python would take more.
        if re.fullmatch(r"-?[0-9]+", values[node_id_key]) is None:
            raise StorageError(
                f"{source}: {node_id_key}={values[node_id_key]} is malformed, it is no number: {_RESTORE}"
            )
        try:
            directory_id = uuid_from_text(values[DIRECTORY_ID]) if DIRECTORY_ID in values else ZERO_UUID
        except ValueError as error:
            raise StorageError(f"{source}: {DIRECTORY_ID} is malformed: {error}") from error
        if DIRECTORY_ID in values and is_reserved(directory_id):
            raise StorageError(f"{source}: {DIRECTORY_ID}={values[DIRECTORY_ID]} is reserved: {_RESTORE}")
        return cls(int(values[node_id_key]), values["cluster.id"], directory_id, int(version))

    @property
    def has_directory_id(self) -> bool:
        """Whether the file has one: Kafka 3.3 to 3.6 wrote none, nor did brokers that used ZooKeeper."""
        return self.directory_id != ZERO_UUID

    def write(self, log_dir: Path) -> None:
        """Write the file durably into `log_dir`, which must exist."""
        lines = [f"version={self.version}", f"{NODE_ID_KEYS[self.version]}={self.node_id}"]
        lines.append(f"cluster.id={_escape(self.cluster_id)}")
        if self.has_directory_id:
            lines.append(f"{DIRECTORY_ID}={uuid_to_text(self.directory_id)}")
        write_durably(log_dir / FILE_NAME, ("\n".join(lines) + "\n").encode("ascii"))

    def completed(self, log_dir: Path) -> MetaProperties:
        """With a directory id, which is made, and written into the file of `log_dir`, where there is none. As in Kafka
        the version stays: a broker that goes back to ZooKeeper reads no other."""
        if self.has_directory_id:
            return self
        complete = self.replace(directory_id=random_uuid())
        complete.write(log_dir)
        return complete

    def check(self, log_dir: Path, node_id: int, cluster_id: str | None = None) -> None:
        """Raise StorageError unless this dir belongs to `node_id` and, when given, to `cluster_id`."""
        if self.node_id != node_id:
            raise StorageError(
                f"{log_dir / FILE_NAME} says {NODE_ID_KEYS[self.version]}={self.node_id}, but the setting node.id is "
                f"{node_id}: set node.id to the former, or log.dirs to another directory"
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
