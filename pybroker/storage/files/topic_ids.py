"""`.pybroker_topic_ids` of one log dir: of which topic each partition in it is, a second time.

A damaged `partition.metadata` would keep its partition offline. Nobody may guess the topic of its records, because a
topic of that name may have been deleted and made anew. This file says what the directory was opened as last. It is
written with the checkpoints, so partitions that are younger are not in it. Text: the version, the number of entries,
then one `topic partition id` per line. Any thread; what blocks says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Container
from pathlib import Path

from pybroker.protocol.uuids import uuid_from_text, uuid_to_text
from pybroker.storage.errors import StorageError, said_of
from pybroker.storage.files import partition_metadata
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.files.regular_file import read_text

logger = logging.getLogger(__name__)

FILE_NAME = ".pybroker_topic_ids"
_VERSION = "0"


def read(path: Path) -> dict[TopicPartition, bytes]:
    """Topic ids (16 bytes) by partition; {} when the file is absent. Blocks. StorageError, OSError."""
    try:
        lines = read_text(path).splitlines()
        if lines[0] != _VERSION or len(lines) != int(lines[1]) + 2:
            raise StorageError(f"{path} is damaged: {lines[:2]!r} before {len(lines) - 2} entries")
        found = {}
        for line in lines[2:]:
            topic, partition, topic_id = line.split()
            found[topic, int(partition)] = uuid_from_text(topic_id)
    except FileNotFoundError:
        return {}
    except (ValueError, IndexError) as error:
        raise StorageError(f"{path} is damaged: {said_of(error)}") from error
    return found


class TopicIds:
    """Topic ids by partition: what is noted counts at once, and is on the disk after `save`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._ids: dict[TopicPartition, bytes] = {}
        self._saved: dict[TopicPartition, bytes] = {}
        self._lock = threading.Lock()

    def load(self, present: Container[TopicPartition]) -> None:
        """Read what the file says of partitions that are `present` in the dir. Blocks. OSError."""
        try:
            found = read(self._path)
        except StorageError as error:
            logger.warning("%s; it is made anew from partition.metadata of each partition", error)
            return
        with self._lock:
            self._saved = found
            self._ids = {key: topic_id for key, topic_id in found.items() if key in present}

    def get(self, partition: TopicPartition) -> bytes | None:
        """The topic that the partition's directory was opened as last; None: nothing says."""
        return self._ids.get(partition)

    def note(self, partition: TopicPartition, topic_id: bytes) -> None:
        """The directory of the partition is of that topic."""
        with self._lock:
            self._ids[partition] = topic_id

    def forget(self, partition: TopicPartition) -> None:
        """The partition lies here no more."""
        with self._lock:
            self._ids.pop(partition, None)

    def save(self) -> None:
        """Return when what was noted is on the disk. Blocks. OSError."""
        with self._lock:
            ids = dict(self._ids)
        if ids == self._saved:
            return
        lines = [_VERSION, str(len(ids))]
        lines += [f"{topic} {index} {uuid_to_text(topic_id)}" for (topic, index), topic_id in ids.items()]
        write_durably(self._path, ("\n".join(lines) + "\n").encode())
        self._saved = ids


def topic_id_of(path: Path, known: bytes | None) -> bytes | None:
    """The topic id of a partition's directory; None where it has no partition.metadata. One that is damaged is made
    anew when it is `known` of which topic the directory is. Blocks. StorageError when it is not; OSError."""
    try:
        return partition_metadata.read(path)
    except StorageError as error:
        if known is None:
            raise StorageError(
                f"{error}. Nothing else says of which topic {path} is, and its records must not come under another one."
                " Restore the file, or write it by hand when you know the id, with 'version: 0' and 'topic_id: ID' in "
                "a line each, as in the other partitions of the topic"
            ) from error
        logger.warning("%s; it is made anew with the topic id %s, from %s", error, uuid_to_text(known), FILE_NAME)
    partition_metadata.write(path, known)
    return known
