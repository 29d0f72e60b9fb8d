"""Log dirs at start: locking them, telling new ones from known ones, and setting up new ones so that Apache Kafka opens
them too (what `kafka-storage format --standalone` writes, KIP-853).

Blocks on the disk; before the event loop has anything else to do. Fails with `StorageError` or `OSError`. A dir counts
as set up when it has a meta.properties, which is written last: an interrupted set-up is simply done again.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from pybroker.metadata import features, log_files, snapshot
from pybroker.metadata import records as batches
from pybroker.metadata.image import QuorumImage, Voter
from pybroker.metadata.records import ControlRecord, VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.storage.dirs.format_version import check_format, mark_format
from pybroker.storage.dirs.log_directory import is_partition
from pybroker.storage.errors import StorageError
from pybroker.storage.files.applied_metadata import FILE_NAME as APPLIED_FILE
from pybroker.storage.files.applied_metadata import recorded_identity
from pybroker.storage.files.clean_shutdown import FILE_NAME as CLEAN_SHUTDOWN_FILE
from pybroker.storage.files.directory_lock import DirectoryInUse, DirectoryLock
from pybroker.storage.files.meta_properties import FILE_NAME as PROPERTIES_FILE
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.files.modes import DIRECTORY_MODE, FILE_MODE, make_directory
from pybroker.storage.files.topic_ids import FILE_NAME as TOPIC_IDS_FILE
from pybroker.values import Value

logger = logging.getLogger(__name__)

BOOTSTRAP_FILE = "bootstrap.checkpoint"
CONTROLLER_LISTENER = ("CONTROLLER", "127.0.0.1", 9093)
"""Listener name, host and port that a new dir records for its voter. Nothing listens there."""

_PARTITION_NAME = re.compile(r".+-\d+")
#: The files that say how far logs go, as both Kafka and this broker keep them.
_CHECKPOINT_SUFFIX = "-checkpoint"


class LogDir(Value):
    """One log dir, locked by this process."""

    path: Path
    directory_id: bytes
    lock: DirectoryLock


class LogDirs(Value):
    """All log dirs of a broker that can be used, in the order of log.dirs. `metadata` is the one with the metadata log;
    `offline` says what is wrong with the others."""

    cluster_id: str
    dirs: tuple[LogDir, ...]
    metadata: LogDir
    offline: Mapping[Path, str] = field(default_factory=dict)

    @property
    def metadata_log_directory(self) -> Path:
        """Where `__cluster_metadata-0` is."""
        return self.metadata.path / log_files.PARTITION_DIRECTORY

    def release(self) -> None:
        """Unlock all of them."""
        for each in self.dirs:
            each.lock.release()


def open_log_dirs(
    paths: Sequence[Path],
    node_id: int,
    now_ms: int,
    metadata_dir: Path | None = None,
    controller_listener: tuple[str, str, int] | None = CONTROLLER_LISTENER,
    joined_cluster_id: str | None = None,
) -> LogDirs:
    """Lock the dirs, set up those that are new, and check that all belong to `node_id` and one cluster.

    `paths` must not be empty; `metadata_dir` (metadata.log.dir) defaults to the first. A dir that cannot be read, made
    or locked is left out and the others serve, unless it is the one with the metadata log. StorageError says which dir
    or setting is at fault; nothing stays locked then. With `joined_cluster_id` all dirs have to belong to the cluster
    of that id, whose controllers elsewhere keep the metadata log.
    """
    assert paths
    metadata_path = metadata_dir if metadata_dir is not None else paths[0]
    every_path = list(dict.fromkeys([*paths, metadata_path]))
    locks: dict[Path, DirectoryLock] = {}
    offline: dict[Path, str] = {}
    known: dict[Path, MetaProperties | None] = {}
    try:
        for path in every_path:
            try:
                locks[path] = _lock(path)
                check_format(path)
                known[path] = _identity(path)
            except (OSError, DirectoryInUse) as error:
                if path == metadata_path:
                    raise
                _leave_out(path, error, offline)
        if joined_cluster_id is None:
            cluster_id = _check_known(known, node_id, metadata_path, offline)
        else:
            cluster_id, controller_listener = joined_cluster_id, None
            _check_joined(known, node_id, joined_cluster_id)
        _mark(known, metadata_path, offline)
        # The dir of the metadata log comes first: it says which cluster the others, if a crash leaves them out, join.
        for path in sorted(known, key=lambda each: each != metadata_path):
            properties = known[path]
            if properties is None:
                listener = controller_listener if path == metadata_path else None
                known[path] = _set_up(path, node_id, cluster_id, now_ms, listener)
    except BaseException:
        for lock in locks.values():
            lock.release()
        raise
    dirs = {
        path: LogDir(path, properties.directory_id, locks[path])
        for path, properties in known.items()
        if properties is not None
    }
    return LogDirs(cluster_id, tuple(dirs.values()), dirs[metadata_path], offline)


def _identity(path: Path) -> MetaProperties | None:
    """The identity that meta.properties gives a dir; None when it is new. A damaged file, or one that is missing though
    partitions are there, is made anew from `.pybroker_applied_metadata`. StorageError when that is no help, or says
    otherwise."""
    try:
        recorded = recorded_identity(path)
    except StorageError:
        recorded = None  # is told when the dir is read
    try:
        properties = MetaProperties.read(path)
        if properties is None and (recorded is None or not any(map(is_partition, path.iterdir()))):
            return None
        problem = f"{path / PROPERTIES_FILE} is missing"
    except StorageError as error:
        if recorded is None:
            raise
        properties, problem = None, str(error)
    if properties is None and recorded is not None:
        logger.warning("%s; it is made anew from %s", problem, APPLIED_FILE)
        recorded.write(path)
        return recorded
    if properties is None or recorded is None:
        return properties
    known = properties if properties.has_directory_id else properties.replace(directory_id=recorded.directory_id)
    if not _is_same_dir(known, recorded):
        raise StorageError(
            f"{path / PROPERTIES_FILE} says cluster.id={properties.cluster_id} and "
            f"directory.id={uuid_to_text(known.directory_id)}, but {path / APPLIED_FILE} says "
            f"cluster.id={recorded.cluster_id} and directory.id={uuid_to_text(recorded.directory_id)}: one of the "
            "files was changed. Set meta.properties right; if it is right as it is, move the other file away"
        )
    if not properties.has_directory_id:
        logger.warning(
            "%s has lost its directory.id, which is written again from %s", path / PROPERTIES_FILE, APPLIED_FILE
        )
        known.write(path)
    return known


def _is_same_dir(properties: MetaProperties, recorded: MetaProperties) -> bool:
    """The node id is compared with the settings."""
    return (properties.cluster_id, properties.directory_id) == (recorded.cluster_id, recorded.directory_id)


def _lock(path: Path) -> DirectoryLock:
    make_directory(path, exist_ok=True)
    # A directory that can be listed can be used; a dead disk often shows only here.
    os.listdir(path)
    return DirectoryLock(path)


def _leave_out(path: Path, error: Exception, offline: dict[Path, str]) -> None:
    logger.error("log dir %s cannot be used, and what lies there is offline: %s", path, error)
    offline[path] = str(error)


def _mark(known: dict[Path, MetaProperties | None], metadata_path: Path, offline: dict[Path, str]) -> None:
    """Say in each dir that this version has it, before anything else changes there. One without a directory.id, as
    Kafka before 3.7 and brokers with ZooKeeper left it, gets one."""
    for path, properties in list(known.items()):
        try:
            mark_format(path)
            if properties is not None and not properties.has_directory_id:
                known[path] = properties.completed(path)
                logger.info("%s had no directory.id; one was added", path / PROPERTIES_FILE)
        except OSError as error:
            if path == metadata_path:
                raise
            del known[path]
            _leave_out(path, error, offline)


def _check_known(
    known: dict[Path, MetaProperties | None], node_id: int, metadata_path: Path, offline: Mapping[Path, str]
) -> str:
    """The id of the cluster the dirs belong to; a new one when all are new."""
    cluster_id = _common_cluster_id(known, node_id)
    if cluster_id is None:
        if offline:
            path, why = next(iter(offline.items()))
            raise StorageError(
                f"{metadata_path} is empty, and {path}, which may belong to a cluster, cannot be used ({why}): mend "
                "that one first, or take it out of log.dirs to begin a new cluster"
            )
        return uuid_to_text(random_uuid())
    if known[metadata_path] is None:
        raise StorageError(
            f"{metadata_path} is empty, but other log.dirs belong to cluster {cluster_id}: its metadata log is "
            "elsewhere. Set metadata.log.dir to the directory that has __cluster_metadata-0"
        )
    if not (metadata_path / log_files.PARTITION_DIRECTORY).is_dir():
        if not offline and is_only_formatted(metadata_path, known):
            (metadata_path / log_files.PARTITION_DIRECTORY).mkdir(DIRECTORY_MODE)
            return cluster_id
        properties = known[metadata_path]
        is_old = properties is not None and properties.version == 0
        zookeeper = (
            ". Where ZooKeeper still keeps the metadata of this cluster, migrate it with Apache Kafka 3.9 first, and "
            "start this broker with process.roles=broker"
        )
        raise StorageError(
            f"{metadata_path} has no __cluster_metadata-0: set metadata.log.dir to the log dir that has it, or restore "
            "it from a backup. If it is lost, `pybroker metadata accept` says what there is without it"
            + (zookeeper if is_old else "")
        )
    return cluster_id


def is_only_formatted(metadata_path: Path, known: Iterable[Path]) -> bool:
    """Whether `kafka-storage format` of Kafka 3.3 to 4.3 made the log dirs and nothing has run in them: it makes no
    metadata log without `--standalone` or `--initial-controllers`. A broker leaves partitions, checkpoints or marks."""
    used = {APPLIED_FILE, TOPIC_IDS_FILE, CLEAN_SHUTDOWN_FILE, log_files.PARTITION_DIRECTORY}
    return (metadata_path / BOOTSTRAP_FILE).exists() and not any(
        entry.name in used or entry.name.endswith(_CHECKPOINT_SUFFIX) or is_partition(entry)
        for path in known
        for entry in path.iterdir()
    )


def _common_cluster_id(known: Mapping[Path, MetaProperties | None], node_id: int) -> str | None:
    """The id of the cluster that all dirs which are not new belong to; None when all are new."""
    cluster_id: str | None = None
    directory_ids: dict[bytes, Path] = {}
    for path, properties in known.items():
        if properties is None:
            _check_empty(path)
            continue
        properties.check(path, node_id, cluster_id)
        cluster_id = properties.cluster_id
        if not properties.has_directory_id:
            continue
        twin = directory_ids.setdefault(properties.directory_id, path)
        if twin != path:
            raise StorageError(
                f"{path} and {twin} have the same directory.id, so one is a copy of the other: take the one that is "
                "not up to date out of log.dirs"
            )
    return cluster_id


def _check_joined(known: Mapping[Path, MetaProperties | None], node_id: int, joined_cluster_id: str) -> None:
    cluster_id = _common_cluster_id(known, node_id)
    if cluster_id not in (None, joined_cluster_id):
        raise StorageError(
            f"log.dirs belong to cluster {cluster_id}, and the controllers are of cluster {joined_cluster_id}: check "
            "controller.quorum.bootstrap.servers, or set log.dirs to other directories"
        )


def _check_empty(path: Path) -> None:
    strangers = [
        entry.name
        for entry in path.iterdir()
        if entry.is_dir() and _PARTITION_NAME.fullmatch(entry.name) and entry.name != log_files.PARTITION_DIRECTORY
    ]
    if strangers:
        raise StorageError(
            f"{path} has partitions ({strangers[0]}) but no meta.properties, so nothing says which cluster they are "
            "of: restore meta.properties, or set log.dirs to an empty directory"
        )


def _set_up(
    path: Path, node_id: int, cluster_id: str, now_ms: int, controller_listener: tuple[str, str, int] | None
) -> MetaProperties:
    """Write a new log dir; with `controller_listener` the metadata log's beginnings too."""
    properties = MetaProperties(node_id, cluster_id, random_uuid())
    for name in (APPLIED_FILE, TOPIC_IDS_FILE):
        # It may be left from before somebody emptied the dir.
        (path / name).unlink(missing_ok=True)
    if controller_listener is not None:
        levels = _level_records(features.BOOTSTRAP_LEVELS)
        snapshot.write_snapshot(path / BOOTSTRAP_FILE, 0, now_ms, 0, None, levels, mode=FILE_MODE)
        begin_metadata_log(path, properties, controller_listener, now_ms)
    properties.write(path)
    logger.info("log dir %s set up for node %d of cluster %s", path, node_id, cluster_id)
    return properties


def begin_metadata_log(
    path: Path, properties: MetaProperties, controller_listener: tuple[str, str, int], now_ms: int
) -> None:
    """Make `__cluster_metadata-0` of a log dir with its first snapshot, which names the one voter."""
    directory = path / log_files.PARTITION_DIRECTORY
    directory.mkdir(DIRECTORY_MODE, exist_ok=True)
    voter = only_voter(properties.node_id, properties.directory_id, controller_listener)
    quorum = QuorumImage(kraft_version=1, voters=(voter,))
    snapshot.write_snapshot(directory / log_files.SnapshotId(0, 0).file_name, 0, now_ms, now_ms, quorum, ())


def only_voter(
    node_id: int, directory_id: bytes, controller_listener: tuple[str, str, int] = CONTROLLER_LISTENER
) -> Voter:
    """The one voter of an embedded controller's quorum."""
    return Voter(node_id, directory_id, (controller_listener,), features.SUPPORTED[features.KRAFT_VERSION])


def read_bootstrap_records(metadata_dir: Path) -> list[VersionedRecord]:
    """The records a new cluster begins with. Apache Kafka writes them into the first snapshot of the metadata log from
    4.4 on (KIP-1170), and into bootstrap.checkpoint before. As in Kafka, a dir without any begins with the newest
    levels. MetadataError when a file is damaged."""
    first = metadata_dir / log_files.PARTITION_DIRECTORY / log_files.SnapshotId(0, 0).file_name
    for path in (first, metadata_dir / BOOTSTRAP_FILE):
        found = _bootstrap_records(path) if path.exists() else []
        if found:
            return found
    levels = ", ".join(f"{name}={level}" for name, level in features.DEFAULT_LEVELS.items())
    logger.warning("neither %s nor %s says which feature levels to begin with: %s", first, BOOTSTRAP_FILE, levels)
    return _level_records(features.DEFAULT_LEVELS)


def _bootstrap_records(path: Path) -> list[VersionedRecord]:
    return [
        record
        for data in log_files.read_snapshot_batches(path)
        for record in batches.decode_batch(data, str(path)).records
        if not isinstance(record, ControlRecord)
    ]


def _level_records(levels: Mapping[str, int]) -> list[VersionedRecord]:
    return [VersionedRecord(m.FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in levels.items()]
