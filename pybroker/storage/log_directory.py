"""`LogDirectory`: one log dir as the log manager sees it: what lies in it, its checkpoints, its clean-shutdown mark.

Methods that touch the disk block and run on worker threads, one at a time per dir; the asyncio loop reads the
attributes once `load` is done. Fails with `OSError`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from pybroker.native.partition import PartitionState
from pybroker.storage import clean_shutdown, offset_checkpoint
from pybroker.storage.atomic import fsync_directory
from pybroker.storage.errors import StorageError
from pybroker.storage.offset_checkpoint import TopicPartition

logger = logging.getLogger(__name__)

DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"

_PARTITION_NAME = re.compile(r"([A-Za-z0-9._-]{1,249})-(\d{1,10})")
_METADATA_TOPIC = "__cluster_metadata"
_NAME_BYTES = 255


class LogDirectory:
    """One of log.dirs. `clean` says that its last broker closed it in order, under `previous_broker_epoch`."""

    def __init__(self, path: Path, directory_id: bytes) -> None:
        self.path = path
        self.directory_id = directory_id
        self.clean = False
        self.previous_broker_epoch = clean_shutdown.UNKNOWN_BROKER_EPOCH
        self.partitions: dict[TopicPartition, Path] = {}
        self.deleted: list[Path] = []
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_start_offsets: dict[TopicPartition, int] = {}
        self._written: dict[str, dict[TopicPartition, int]] = {}

    def load(self) -> None:
        """Read marks and checkpoints and list the partitions; from here on a crash is an unclean stop."""
        epoch = clean_shutdown.read(self.path)
        self.clean = epoch is not None
        if epoch is not None:
            self.previous_broker_epoch = epoch
            clean_shutdown.remove(self.path)
        self._recovery_points = self._read(offset_checkpoint.RECOVERY_POINT)
        self._log_start_offsets = self._read(offset_checkpoint.LOG_START_OFFSET)
        for entry in sorted(self.path.iterdir()):
            if not entry.is_dir():
                continue
            if entry.name.endswith(DELETED_SUFFIX):
                self.deleted.append(entry)
            match = _PARTITION_NAME.fullmatch(entry.name)
            if match is not None and match[1] != _METADATA_TOPIC:
                self.partitions[match[1], int(match[2])] = entry

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return offset_checkpoint.read(self.path / name)
        except StorageError as error:
            logger.warning("%s; the logs of this dir are read from their beginning instead", error)
            return {}

    def recovery_point(self, partition: TopicPartition) -> int:
        """Everything below it was synced; 0 when unknown."""
        return self._recovery_points.get(partition, 0)

    def log_start_offset(self, partition: TopicPartition) -> int:
        """The log start offset of the last checkpoint; -1 when unknown."""
        return self._log_start_offsets.get(partition, -1)

    def write_checkpoints(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """Write what changed since the last time. `states` are of all partitions in this dir. Blocks."""
        self._write(offset_checkpoint.RECOVERY_POINT, {key: each.recovery_point for key, each in states.items()})
        self._write(offset_checkpoint.HIGH_WATERMARK, {key: each.high_watermark for key, each in states.items()})
        starts = {key: each.log_start_offset for key, each in states.items() if each.log_start_offset > 0}
        self._write(offset_checkpoint.LOG_START_OFFSET, starts)

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if self._written.get(name) != offsets:
            offset_checkpoint.write(self.path / name, offsets)
            self._written[name] = offsets

    def mark_clean(self, broker_epoch: int) -> None:
        """Everything in here is synced: the last thing written. Blocks."""
        clean_shutdown.write(self.path, broker_epoch)

    def set_aside(self, partition: TopicPartition, path: Path, suffix: str) -> Path:
        """Rename a partition's directory as Kafka does, with DELETED_SUFFIX or STRAY_SUFFIX; the new path. Blocks."""
        topic, index = partition
        ending = f"-{index}.{uuid.uuid4().hex}{suffix}"
        renamed = path.with_name(topic[: _NAME_BYTES - len(ending)] + ending)
        os.rename(path, renamed)
        fsync_directory(self.path)
        return renamed


def remove_tree(path: Path) -> None:
    """Remove a directory that was set aside; what cannot be removed is logged and tried again at the next start."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        logger.warning("%s cannot be removed: %s", path, error)
