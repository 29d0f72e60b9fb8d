"""The metadata log of a stopped broker, replayed without one, and what it says of the log dir it lies in.

Blocks on file reads; writes nothing. Contradictions go to the report of `pybroker.storage.offline`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pybroker.metadata import log_files, records
from pybroker.metadata.delta import empty_image
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.loader import BatchReplayer
from pybroker.metadata.log_files import SegmentReader
from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files import applied_metadata
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.meta_properties import DIRECTORY_ID
from pybroker.storage.offline import text_files
from pybroker.storage.offline.checks.check import LogDirState
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.layout import MetadataSnapshot, PartitionFiles
from pybroker.storage.offline.partition_state import PartitionState
from pybroker.values import Value


class Replayed(Value):
    """The metadata at the end of the log, and the epoch of its last batch."""

    image: MetadataImage
    epoch: int


def replay(files: PartitionFiles) -> Replayed:
    """Replay the newest snapshot and the log behind it. MetadataError names the record that cannot be replayed."""
    replayer = BatchReplayer(empty_image(""))
    snapshot = max(files.metadata_snapshots, key=lambda each: each.end_offset, default=None)
    start, epoch, end = 0, -1, 0
    if snapshot is not None and snapshot.end_offset > 0:
        _replay_snapshot(replayer, snapshot)
        start, epoch, end = snapshot.end_offset, snapshot.epoch, snapshot.end_offset
    for base_offset, path in files.logs:
        for data in _batches(path, base_offset):
            batch = records.decode_batch(data, str(path))
            if batch.next_offset > start:
                replayer.replay(batch)
                epoch, end = batch.epoch, batch.next_offset
    return Replayed(replayer.finish(end, epoch), epoch)


def newest(logs: Iterable[PartitionFiles]) -> Replayed:
    """The content of the log that goes furthest, as the election of a leader would have it. MetadataError as of
    `replay`."""
    return max(map(replay, logs), key=lambda each: (each.epoch, each.image.provenance.end_offset))


def read_snapshot(snapshot: MetadataSnapshot) -> MetadataImage:
    """The metadata of one snapshot. MetadataError names the record that cannot be replayed."""
    replayer = BatchReplayer(empty_image(""))
    _replay_snapshot(replayer, snapshot)
    return replayer.finish(snapshot.end_offset, snapshot.epoch)


def _replay_snapshot(replayer: BatchReplayer, snapshot: MetadataSnapshot) -> None:
    for data in log_files.read_snapshot_batches(snapshot.path):
        replayer.replay(records.decode_batch(data, str(snapshot.path)))


def _batches(path: Path, base_offset: int) -> Iterator[bytes]:
    reader = SegmentReader(path, base_offset)
    yield from reader
    if reader.problem is not None:
        raise MetadataError(f"{path}: {reader.problem} at position {reader.valid_bytes}")


def check_metadata(partition: PartitionState, log_dir: LogDirState | None, report: Report) -> None:
    """Replay the log, and compare what it says with quorum-state and the log dir around it."""
    files = partition.files
    if partition.is_damaged:
        # Which bytes are damaged has been told; a replay would say the same in other words.
        return
    try:
        replayed = replay(files)
    except MetadataError as error:
        report.error("metadata", files.path, str(error))
        return
    except OSError as error:
        report.error("unreadable", files.path, str(error))
        return
    node_id = text_files.node_id_of(log_dir.properties) if log_dir is not None and log_dir.properties else None
    _check_quorum_state(files, replayed, node_id, report)
    if log_dir is not None:
        _check_end(log_dir, replayed, report)
        _check_topics(log_dir, replayed.image, report)
        _check_broker(log_dir, replayed.image, report)


def _check_quorum_state(files: PartitionFiles, replayed: Replayed, node_id: int | None, report: Report) -> None:
    path = files.quorum_state
    if path is None:
        if files.logs:
            report.warning("file-missing", files.path, "there is no quorum-state")
        return
    try:
        content = text_files.quorum_state(path)
        report.saw(path)
    except text_files.Damage as error:
        report.error("malformed", path, str(error), position=error.position)
        return
    epoch, leader = content["leaderEpoch"], content["leaderId"]
    # A leader begins its epoch with a batch of it; who follows may not have got that yet.
    leads = node_id is not None and leader == node_id
    if epoch < replayed.epoch or (leads and epoch != replayed.epoch):
        text = f"leaderEpoch is {epoch}, the last batch of the metadata log has epoch {replayed.epoch}"
        report.error("quorum-state", path, text)
    voters = {voter.id for voter in replayed.image.quorum.voters}
    if voters and leader >= 0 and leader not in voters:
        report.error("quorum-state", path, f"leaderId is {leader}, which is no voter")


def _check_end(log_dir: LogDirState, replayed: Replayed, report: Report) -> None:
    """Whether the log has all that its broker had applied."""
    path = log_dir.files.path / applied_metadata.FILE_NAME
    try:
        applied = AppliedMetadata.read(log_dir.files.path)
    except (StorageError, OSError) as error:
        report.error("malformed", path, str(error))
        return
    end_offset = replayed.image.provenance.end_offset
    if applied is not None and not (end_offset >= applied.end_offset and replayed.epoch >= applied.epoch):
        text = (
            f"metadata were applied up to offset {applied.end_offset} in epoch {applied.epoch}, and the log ends at "
            f"offset {end_offset} in epoch {replayed.epoch}"
        )
        report.error("metadata-end", path, text)


def _check_topics(log_dir: LogDirState, image: MetadataImage, report: Report) -> None:
    for each in log_dir.partitions:
        if each.files.is_metadata_log:
            continue
        topic = image.topics.by_name.get(each.files.topic)
        if topic is None or each.files.index not in topic.partitions:
            report.warning("metadata-topic", each.files.path, "the metadata log does not have this partition")
        elif each.topic_id is not None and each.topic_id != topic.id and each.files.metadata is not None:
            text = f"the topic id is {uuid_to_text(each.topic_id)}, the metadata log says {uuid_to_text(topic.id)}"
            report.error("topic-id", each.files.metadata, text)


def _check_broker(log_dir: LogDirState, image: MetadataImage, report: Report) -> None:
    """meta.properties and the mark of a clean stop, against the broker's registration."""
    if not log_dir.properties:
        return
    path = log_dir.files.files["meta.properties"]
    node_id = text_files.node_id_of(log_dir.properties)
    broker = image.cluster.brokers.get(node_id)
    if broker is None:
        controllers = {voter.id for voter in image.quorum.voters} | set(image.cluster.controllers)
        if image.cluster.brokers and node_id not in controllers:
            report.error("identity", path, f"node.id is {node_id}, which the metadata log does not know as a broker")
        return
    directory_id = log_dir.properties.get(DIRECTORY_ID)
    known = [uuid_to_text(each) for each in broker.directories]
    if known and directory_id not in known:
        has = "there is no directory.id" if directory_id is None else f"directory.id is {directory_id}"
        text = f"{has}, broker {node_id} registered with {', '.join(known)}"
        report.error("identity", path, text)
    epoch = log_dir.broker_epoch
    if epoch is not None and epoch >= 0 and epoch != broker.epoch:
        text = f"the broker epoch is {epoch}, the metadata log says {broker.epoch}"
        report.error("broker-epoch", log_dir.files.files[".kafka_cleanshutdown"], text)


def topic_ids(files: PartitionFiles) -> dict[str, bytes]:
    """Topic ids by name; what a damaged log has up to the damage, and nothing when that cannot be replayed."""
    try:
        image = replay(files).image
    except (MetadataError, OSError):
        return {}
    return {name: topic.id for name, topic in image.topics.by_name.items()}
