"""Strays: directories of partitions that the metadata did not have when a broker started. It renames them, and nobody
reads or removes them until somebody decides.

Blocks on the disk; no broker may have the log dir open, but for `tell_kept`. Fails with `StorageError` and `OSError`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.dirs.log_directory import STRAY_SUFFIX, LogDirectory
from pybroker.storage.errors import StorageError
from pybroker.storage.files import partition_metadata
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.values import Value

logger = logging.getLogger(__name__)

#: As brokers name them, pybroker and Apache Kafka. A name has only the beginning of a long topic.
_STRAY_NAME = re.compile(rf"(?P<topic>.+)-(?P<index>\d{{1,10}})\.[A-Za-z0-9_-]+{STRAY_SUFFIX}")

#: A log line names no more.
_NAMED_COUNT = 10


def tell_kept(directory: LogDirectory, strays: Sequence[TopicPartition], image: AppliedMetadata) -> None:
    """Say that nothing is renamed in a dir whose metadata once went further than `image`."""
    applied = directory.applied
    if applied is None or directory.is_applied_unknown:
        if not strays:
            return
        known = "an unknown offset"
    else:
        known = f"offset {applied.end_offset} in epoch {applied.epoch}"
    logger.error(
        "%s: the metadata end at offset %d in epoch %d, but were applied here up to %s before, so they may have lost "
        "topics. The directories of those that they do not know stay as they are, and are not served: %s",
        directory.path,
        image.end_offset,
        image.epoch,
        known,
        ", ".join(f"{topic}-{index}" for topic, index in strays[:_NAMED_COUNT]) or "none here",
    )


class Stray(Value):
    """One of them. `topic` is as much of the topic's name as the directory's has; `topic_id` is None where
    `problem` says why it cannot be read."""

    path: Path
    topic: str
    index: int
    topic_id: bytes | None
    problem: str | None
    size_bytes: int


def find(log_dir: Path) -> list[Stray]:
    """Those of a log dir, by name."""
    return [read(entry) for entry in sorted(log_dir.iterdir()) if _STRAY_NAME.fullmatch(entry.name) and entry.is_dir()]


def read(path: Path) -> Stray:
    """The stray at `path`. StorageError when it is none."""
    match = _STRAY_NAME.fullmatch(path.name)
    if match is None or not path.is_dir() or path.is_symlink():
        raise StorageError(f"{path}: no directory of a partition that was set aside: its name ends with {STRAY_SUFFIX}")
    topic_id, problem = None, None
    try:
        topic_id = partition_metadata.read(path)
        problem = f"{path / partition_metadata.FILE_NAME} is missing" if topic_id is None else None
    except (StorageError, OSError) as error:
        problem = str(error)
    size_bytes = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))
    return Stray(path, match["topic"], int(match["index"]), topic_id, problem, size_bytes)


def target_of(stray: Stray, topics: Mapping[bytes, tuple[str, int]] | None) -> Path:
    """The path by which the next start finds it. `topics` has the name and the number of partitions of each topic by
    its id, by the metadata log. None: no metadata log is here, and the next start compares. StorageError when it is of
    no topic that is there, or something lies under that name."""
    if stray.topic_id is None:
        raise StorageError(f"{stray.problem}: nothing says of which topic {stray.path} is")
    name = stray.topic
    if topics is not None:
        known = topics.get(stray.topic_id)
        if known is None:
            raise StorageError(
                f"{stray.path} is of a topic with the id {uuid_to_text(stray.topic_id)}, which the metadata do not "
                "have, so the next start would set it aside again. Call it "
                f"{stray.topic}-{stray.index} and run `pybroker metadata accept --with-topics` to make the topic anew"
            )
        name, partition_count = known
        if stray.index >= partition_count:
            raise StorageError(f"{stray.path}: topic {name} has only {partition_count} partitions")
    target = stray.path.with_name(f"{name}-{stray.index}")
    if os.path.lexists(target) and not _is_empty_log(target):
        raise StorageError(
            f"{target} is there already: a broker has made it since. Keep the one whose records are needed under that "
            "name, and the other elsewhere"
        )
    return target


def _is_empty_log(path: Path) -> bool:
    """Whether it is a partition's directory in which no offset was ever given out."""
    logs = list(path.glob("*.log")) if path.is_dir() and not path.is_symlink() else []
    return [(each.name, each.stat().st_size) for each in logs] == [("00000000000000000000.log", 0)]


def restore(stray: Stray, topics: Mapping[bytes, tuple[str, int]] | None) -> Path:
    """Give it that name; the new path. StorageError as of `target_of`."""
    target = target_of(stray, topics)
    if target.is_dir():
        # A start has made it for the topic that had lost its log, and nothing was written to it.
        os.rename(target, target.with_name(f"{target.name}.{uuid.uuid4().hex}{STRAY_SUFFIX}"))
    os.rename(stray.path, target)
    fsync_directory(target.parent)
    return target


def delete(stray: Stray) -> None:
    """Remove it with its records, for good."""
    shutil.rmtree(stray.path)
    fsync_directory(stray.path.parent)
