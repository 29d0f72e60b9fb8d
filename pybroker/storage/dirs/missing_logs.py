"""Where a log may be that lies in no log dir in service."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from pybroker.protocol.uuids import is_reserved, uuid_to_text
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import StorageError
from pybroker.storage.files import partition_metadata
from pybroker.storage.files.offset_checkpoint import TopicPartition

Left = tuple[LogDirectory, Path]
"""A log that was renamed to be deleted, and lies nowhere else: its log dir and where it is."""


def why_elsewhere(
    key: TopicPartition,
    directory_id: bytes,
    left: Left | None,
    directories: Sequence[LogDirectory],
    offline: Collection[Path],
) -> str | None:
    """For people; None when nothing says that the log lies elsewhere. The metadata places it in the dir
    `directory_id`."""
    if offline:
        where = ", ".join(str(path) for path in offline)
        return f"no log dir in service has it, and it may lie in one that is not: {where}"
    # Reserved ids stand for states of an assignment, not for dirs (KIP-858).
    if not is_reserved(directory_id) and all(each.directory_id != directory_id for each in directories):
        return (
            f"it lies in the log dir whose meta.properties has directory.id={uuid_to_text(directory_id)}, and none "
            "of log.dirs is that one: mount it, name it in log.dirs and start again"
        )
    if left is not None and left[0].directory_id == directory_id and len(directories) > 1:
        # The dir that it was to move to is in service, with another disk.
        return (
            "its move to another log dir was under way, and none has it: mount the disk that it was to move to and "
            f"start again. If that is lost, {left[1]} is the log as it was then: rename it to {key[0]}-{key[1]}"
        )
    return None


def left_of(renamed: Iterable[Left], topic_id: bytes) -> Left | None:
    """The directory of that topic among those that were renamed to be deleted. Blocks."""
    for directory, path in renamed:
        try:
            is_its = partition_metadata.read(path) == topic_id
        except StorageError:
            is_its = True
        if is_its:
            return directory, path
    return None
