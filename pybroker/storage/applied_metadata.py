"""`.pybroker_applied_metadata` of a log dir: up to where of the cluster's metadata its broker has acted.

A metadata log that ends before that has lost records. Without this file nobody could tell, and the partitions of the
topics in them would be taken for those of deleted ones. The file is written before a change of topics takes effect in
the dir, so no directory is there that a change behind the recorded offset made. What it says was durable in the
metadata log before. JSON; Apache Kafka takes no notice of it. Blocks. Fails with `StorageError` and `OSError`.
"""

from __future__ import annotations

import json
from pathlib import Path

from pybroker.storage.atomic import write_durably
from pybroker.storage.errors import StorageError
from pybroker.storage.regular_file import read_bytes
from pybroker.values import Value

FILE_NAME = ".pybroker_applied_metadata"
_VERSION = 1


class AppliedMetadata(Value):
    """All metadata below `end_offset` was applied; the last of them is of `epoch`."""

    cluster_id: str
    end_offset: int
    epoch: int

    @classmethod
    def read(cls, log_dir: Path) -> AppliedMetadata | None:
        """None where nothing was recorded yet. StorageError when the file makes no sense."""
        path = log_dir / FILE_NAME
        try:
            content = json.loads(read_bytes(path))
            version, found = content["version"], cls(content["cluster.id"], content["end.offset"], content["epoch"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{path} is damaged: {error!r}") from error
        if version != _VERSION:
            raise StorageError(f"{path}: version {version!r}, but only version {_VERSION} is known")
        if not (isinstance(found.cluster_id, str) and _is_count(found.end_offset) and _is_count(found.epoch)):
            raise StorageError(f"{path} is damaged: {content!r}")
        return found

    def write(self, log_dir: Path) -> None:
        """Durably."""
        content = {
            "version": _VERSION,
            "cluster.id": self.cluster_id,
            "end.offset": self.end_offset,
            "epoch": self.epoch,
        }
        write_durably(log_dir / FILE_NAME, (json.dumps(content) + "\n").encode())

    def is_reached_by(self, other: AppliedMetadata) -> bool:
        """Whether metadata that go as far as `other` hold all that was applied here."""
        return other.cluster_id == self.cluster_id and other.end_offset >= self.end_offset and other.epoch >= self.epoch


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0
