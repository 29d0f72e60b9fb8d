"""Shared by the commands of `pybroker log stray`: locks, and the topics of a metadata log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from pybroker.metadata.log_files import PARTITION_DIRECTORY
from pybroker.metadata.offline import replay
from pybroker.storage.errors import StorageError
from pybroker.storage.files.directory_lock import DirectoryLock
from pybroker.storage.offline.layout import PartitionFiles


@contextmanager
def locked_dirs(paths: Iterable[Path]) -> Iterator[None]:
    """No broker has the log dirs meanwhile in which `paths` lie. A usage error when one has."""
    with ExitStack() as stack:
        for log_dir in dict.fromkeys(path.resolve().parent for path in paths):
            try:
                stack.callback(DirectoryLock(log_dir).release)
            except (StorageError, OSError) as error:
                raise click.UsageError(str(error)) from None
        yield


def topics_beside(log_dir: Path) -> dict[bytes, tuple[str, int]] | None:
    """Name and number of partitions of each topic by id, as the metadata log in `log_dir` says; None without one.
    MetadataError, OSError."""
    directory = log_dir / PARTITION_DIRECTORY
    if not directory.is_dir():
        return None
    topics = replay(PartitionFiles.of(directory)).image.topics.by_id
    return {topic_id: (topic.name, len(topic.partitions)) for topic_id, topic in topics.items()}
