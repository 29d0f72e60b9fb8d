"""A start's treatment of moves between log dirs that the last stop interrupted; see `log_mover`.

Blocks on the disk, on a worker thread, once all dirs are listed and before a log is opened.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pybroker.storage.dirs.log_directory import DELETED_SUFFIX, LogDirectory, remove_tree
from pybroker.storage.errors import StorageError
from pybroker.storage.files import partition_metadata
from pybroker.storage.files.offset_checkpoint import TopicPartition

logger = logging.getLogger(__name__)

_DELETED_NAME = re.compile(rf"([A-Za-z0-9._-]{{1,249}})-(\d{{1,10}})\.[A-Za-z0-9_-]+{DELETED_SUFFIX}")


@dataclass(slots=True)
class Settled:
    """`wanted`: moves to begin again, and where to. `failed`: dirs in which something could not be done, and why."""

    wanted: dict[TopicPartition, LogDirectory] = field(default_factory=dict)
    failed: list[tuple[LogDirectory, OSError]] = field(default_factory=list)
    #: Names of old directories of moves that could not be finished: the next start needs them.
    needed: set[str] = field(default_factory=set)


def settle_moves(directories: Sequence[LogDirectory]) -> Settled:
    """Finish the moves that were made, remove what there is of others, and let the checkpoints follow."""
    settled = Settled()
    deleted = {path.name for directory in directories for path in directory.deleted}
    placed = {key for directory in directories for key in directory.partitions}
    for directory in directories:
        for key, path, original in directory.futures:
            if key in placed:
                remove_tree(path)
                settled.wanted[key] = directory
                continue
            if original not in deleted:
                # The move may have been made, and its old directory lie in a log dir that is not here.
                logger.error(
                    "%s stays: %s-%d lies nowhere else, and whether its move was made says a log dir that is not in "
                    "service: bring that back and start again. If it is lost, this is the log as far as it was copied",
                    path,
                    *key,
                )
                continue
            try:
                directory.take_future(key, path)
            except OSError as error:
                settled.failed.append((directory, error))
                settled.needed.add(original)
            else:
                logger.warning("%s-%d: its move to %s is finished", *key, directory.path)
    _adopt_checkpoints(directories)
    return settled


def deleted_partition(name: str) -> TopicPartition | None:
    """The partition whose directory was renamed to `name` to be deleted; None when that is no such name."""
    match = _DELETED_NAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


def _adopt_checkpoints(directories: Sequence[LogDirectory]) -> None:
    """A log whose old directory, marked as deleted, still lies in another dir goes by what that dir knows of it."""
    for source in directories:
        for path in source.deleted:
            key = deleted_partition(path.name)
            target = next((each for each in directories if key in each.partitions and each is not source), None)
            if key is None or target is None:
                continue
            try:
                topic_id = partition_metadata.read(path)
                # Another id is of an earlier topic of that name.
                if topic_id is not None and topic_id == partition_metadata.read(target.partitions[key]):
                    target.adopt_checkpoints(key, source)
            except (StorageError, OSError) as error:
                logger.warning("%s-%d is opened without the checkpoints of %s: %s", *key, source.path, error)
