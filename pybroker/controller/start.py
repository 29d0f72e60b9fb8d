"""Start of the embedded controller: from locked log dirs to a leader with a replayed image.

Blocks on the disk before the event loop has anything else to do. Fails with `MetadataError` (the log cannot be used:
the text says why), `StorageError` or `OSError`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pybroker.config.broker import BrokerConfig
from pybroker.controller.controller import Controller
from pybroker.metadata import features, records
from pybroker.metadata.bootstrap import LogDirs, only_voter, read_bootstrap_records
from pybroker.metadata.delta import empty_image
from pybroker.metadata.errors import MetadataError, MetadataLogError
from pybroker.metadata.file_log import FileMetadataLog, MetadataLogConfig
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.loader import BatchReplayer, load, warn_of_unserved
from pybroker.metadata.records import ControlRecord
from pybroker.metadata.retention import Retention
from pybroker.metadata.snapshot import quorum_records, voters_record
from pybroker.protocol import messages as m
from pybroker.storage.dirs.log_directory import is_partition
from pybroker.storage.errors import StorageError
from pybroker.storage.files.applied_metadata import AppliedMetadata

logger = logging.getLogger(__name__)


def log_config(config: BrokerConfig) -> MetadataLogConfig:
    """The metadata log's part of the configuration."""
    # The key for tests goes below the smallest size of the other.
    for_tests = config.get("internal.metadata.log.segment.bytes")
    return MetadataLogConfig(
        segment_bytes=for_tests if isinstance(for_tests, int) else config.get_int("metadata.log.segment.bytes"),
        segment_ms=config.get_int("metadata.log.segment.ms"),
        max_snapshot_interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
        max_bytes_between_snapshots=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
        retention=Retention(
            config.get_int("metadata.max.retention.bytes"), config.get_int("metadata.max.retention.ms")
        ),
    )


async def start_controller(
    config: BrokerConfig,
    log_dirs: LogDirs,
    clock_ms: Callable[[], int],
    on_failure: Callable[[MetadataLogError], None] | None = None,
) -> Controller:
    """Replay the metadata log, lead it in a new epoch, and give a new cluster its first records.

    The broker is not registered yet: `Controller.register_broker` does that when its listeners are known.
    """
    applied = furthest_applied(log_dirs)
    log = FileMetadataLog(log_dirs.metadata_log_directory, log_config(config), applied)
    replayer = load(empty_image(log_dirs.cluster_id), log.replay())
    image = replayer.finish(log.end_offset, log.epoch)
    if log.end_offset == 0 and applied is None:
        _check_new(log_dirs)
    _check_servable(image, log_dirs, config.node_id)
    is_new_log = log.end_offset == 0
    if is_new_log and image.quorum.kraft_version > 0 and not image.quorum.voters:
        # Formatted with --no-initial-controllers. An embedded controller is a quorum of one, so it is the voter.
        replayer.delta.replay_control(voters_record([only_voter(config.node_id, log_dirs.metadata.directory_id)]))
        image = replayer.finish(log.end_offset, log.epoch)
    log.become_leader(config.node_id, image.quorum.kraft_version, clock_ms())
    controller = await _lead(config, log, replayer, image, is_new_log, clock_ms, on_failure)
    if features.METADATA_VERSION not in controller.image.feature_levels:
        await controller.append_first_records(read_bootstrap_records(log_dirs.metadata.path))
    warn_of_unserved(controller.image)
    controller.start_upkeep()
    return controller


def furthest_applied(log_dirs: LogDirs) -> AppliedMetadata | None:
    """How far any of the log dirs says that metadata were applied; None when none says."""
    found: list[AppliedMetadata] = []
    for each in log_dirs.dirs:
        try:
            applied = AppliedMetadata.read(each.path)
        except StorageError as error:
            logger.warning("%s; what it said is not known, so a metadata log that was cut may not be noticed", error)
            continue
        if applied is not None and applied.cluster_id != log_dirs.cluster_id:
            logger.warning("%s is of cluster %s and says nothing of this one", each.path, applied.cluster_id)
        elif applied is not None:
            found.append(applied)
    return max(found, key=lambda each: (each.epoch, each.end_offset), default=None)


def record_applied(log_dirs: LogDirs, image: MetadataImage) -> None:
    """At the end: all of `image` was applied. A record that cannot be written lags behind, as after a crash."""
    applied = AppliedMetadata(image.cluster_id, image.provenance.end_offset, image.provenance.epoch)
    for each in log_dirs.dirs:
        try:
            known = AppliedMetadata.read(each.path)
            if known is not None and known != applied and known.is_reached_by(applied):
                applied.write(each.path)
        except (StorageError, OSError) as error:
            logger.warning("%s: how far metadata were applied could not be noted: %s", each.path, error)


def _check_new(log_dirs: LogDirs) -> None:
    """A metadata log without a record is of a new cluster, whose log dirs hold no partitions."""
    for each in log_dirs.dirs:
        partition = next((entry.name for entry in each.path.iterdir() if is_partition(entry)), None)
        if partition is not None:
            raise MetadataError(
                f"{log_dirs.metadata_log_directory} is empty, but {each.path} holds partitions ({partition}): the "
                "metadata log was lost, and without it they would be set aside. Nothing was changed. Restore "
                "__cluster_metadata-0 from a backup. If there is none, `pybroker metadata accept` says what there is "
                "and lets the broker begin with an empty one"
            )


async def _lead(
    config: BrokerConfig,
    log: FileMetadataLog,
    replayer: BatchReplayer,
    image: MetadataImage,
    is_new_log: bool,
    clock_ms: Callable[[], int],
    on_failure: Callable[[MetadataLogError], None] | None,
) -> Controller:
    """Append what every new leader begins with (KIP-595)."""
    voter = m.LeaderChangeMessage.Voter(voter_id=config.node_id)
    change = m.LeaderChangeMessage(leader_id=config.node_id, voters=[voter], granting_voters=[voter])
    control = [ControlRecord(records.LEADER_CHANGE, change)]
    if is_new_log:
        # The first leader copies the voters of the 0-0 snapshot into the log (KIP-853).
        control += quorum_records(image.quorum)
    await log.append_control(control, clock_ms())
    replayer.delta.replay_control(change)
    controller = Controller(config, log, replayer.finish(log.end_offset, log.epoch), clock_ms, on_failure)
    if replayer.is_in_transaction:
        await controller.abort_transaction(replayer)
    return controller


def _check_servable(image: MetadataImage, log_dirs: LogDirs, node_id: int) -> None:
    directory = log_dirs.metadata_log_directory
    voters = [voter.id for voter in image.quorum.voters]
    if voters and voters != [node_id]:
        raise MetadataError(
            f"{directory}: this metadata log belongs to a quorum of voters {voters}; an embedded controller can only "
            f"go on with a log whose one voter is this node ({node_id})"
        )
    level = image.feature_levels.get(features.METADATA_VERSION)
    if level is not None and not features.MIN_METADATA_VERSION <= level <= features.MAX_METADATA_VERSION:
        raise MetadataError(
            f"{directory}: the cluster has finalised metadata.version {level}; this broker knows "
            f"{features.MIN_METADATA_VERSION} to {features.MAX_METADATA_VERSION}, so a newer one is needed"
        )
    kraft_version = image.quorum.kraft_version
    if kraft_version > features.SUPPORTED[features.KRAFT_VERSION][1]:
        raise MetadataError(f"{directory}: kraft.version {kraft_version} is newer than this broker")
