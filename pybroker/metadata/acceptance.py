"""Going on with a metadata log that has lost records: what is left, what is missing, and an operator's word for it.

A broker refuses such a log. Here it is said which partitions in the log dirs the log knows nothing of. With the
operator's word the log dirs take the log's end for the whole history. Where wanted, topics are made anew from the facts
in their directories: name, number of partitions, id. Their settings are lost. So nothing is deleted by time or size in
them until somebody sets that again. The broker is stopped, and was its own controller. Blocks on the disk. Fails with
`MetadataError`, `StorageError` or `OSError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pybroker.metadata import features, snapshot
from pybroker.metadata.bootstrap import CONTROLLER_LISTENER, begin_metadata_log, read_bootstrap_records
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import NO_LEADER, RESOURCE_TOPIC, MetadataImage, Provenance, Voter
from pybroker.metadata.log_files import (
    PARTITION_DIRECTORY,
    SegmentReader,
    SnapshotId,
    list_segments,
    list_snapshots,
)
from pybroker.metadata.offline import Replayed, replay
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.storage.dirs.log_directory import is_partition
from pybroker.storage.errors import StorageError
from pybroker.storage.files import epoch_checkpoint, partition_metadata
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import PartitionFiles
from pybroker.values import Value

_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_NOTHING_DELETED = (("retention.ms", "-1"), ("retention.bytes", "-1"))


class UnknownPartition(Value):
    """A partition that lies in a log dir and not in the metadata. `topic_id` is None where `problem` says why."""

    path: Path
    topic: str
    index: int
    topic_id: bytes | None
    directory_id: bytes
    problem: str | None


class Remains(Value):
    """All that is left. `replayed` is None where there is no metadata log at all; `applied` is how far the log dirs say
    that it went."""

    node_id: int
    cluster_id: str
    log_dirs: tuple[tuple[Path, MetaProperties], ...]
    metadata_dir: Path
    replayed: Replayed | None
    applied: AppliedMetadata | None
    unknown: tuple[UnknownPartition, ...]

    @property
    def image(self) -> MetadataImage:
        """The metadata that are left."""
        return empty_image(self.cluster_id) if self.replayed is None else self.replayed.image

    @property
    def end(self) -> AppliedMetadata:
        """Where they end."""
        epoch = 0 if self.replayed is None else max(0, self.replayed.epoch)
        return AppliedMetadata(self.cluster_id, self.image.provenance.end_offset, epoch)


def examine(log_dirs: Sequence[Path]) -> Remains:
    """Look at all log dirs of a broker; the one with the metadata log, or that had it, comes first or has it."""
    identified: list[tuple[Path, MetaProperties]] = []
    for path in log_dirs:
        properties = MetaProperties.read(path)
        if properties is None:
            raise StorageError(f"{path} has no meta.properties, so nothing says of which cluster it is")
        if identified:
            properties.check(path, identified[0][1].node_id, identified[0][1].cluster_id)
        identified.append((path, properties))
    first = identified[0][1]
    metadata_dir = next((path for path in log_dirs if (path / PARTITION_DIRECTORY).is_dir()), log_dirs[0])
    replayed = _replayed(metadata_dir / PARTITION_DIRECTORY)
    if replayed is not None:
        image = replayed.image
        voters = {voter.id for voter in image.quorum.voters}
        if voters - {first.node_id}:
            raise MetadataError(f"{metadata_dir}: the metadata log is of a quorum of voters {sorted(voters)}")
    applied = [found for path in log_dirs if (found := _applied(path)) is not None]
    image = empty_image(first.cluster_id) if replayed is None else replayed.image
    return Remains(
        first.node_id,
        first.cluster_id,
        tuple(identified),
        metadata_dir,
        replayed,
        max(applied, key=lambda each: (each.epoch, each.end_offset), default=None),
        tuple(each for path, properties in identified for each in _unknown(path, properties, image)),
    )


def _replayed(directory: Path) -> Replayed | None:
    if not directory.is_dir():
        return None
    files = PartitionFiles.of(directory)
    begin = files.logs[0][0] if files.logs else 0
    if begin > max((each.end_offset for each in files.metadata_snapshots), default=0):
        raise MetadataError(f"{directory}: the log begins at offset {begin}, and no snapshot has what was before")
    return replay(files) if files.logs or files.metadata_snapshots else None


def _applied(log_dir: Path) -> AppliedMetadata | None:
    try:
        return AppliedMetadata.read(log_dir)
    except StorageError:
        return None  # it is written anew


def _unknown(log_dir: Path, properties: MetaProperties, image: MetadataImage) -> Iterator[UnknownPartition]:
    for path in sorted(filter(is_partition, log_dir.iterdir())):
        topic, _, index = path.name.rpartition("-")
        topic_id, problem = None, None
        try:
            topic_id = partition_metadata.read(path)
            problem = f"{path / partition_metadata.FILE_NAME} is missing" if topic_id is None else None
        except (StorageError, OSError) as error:
            problem = str(error)
        known = image.topics.by_name.get(topic)
        if known is None or int(index) not in known.partitions or (topic_id is not None and topic_id != known.id):
            if known is not None and topic_id != known.id:
                problem = problem or f"the metadata have another topic {topic}"
            yield UnknownPartition(path, topic, int(index), topic_id, properties.directory_id, problem)


def accept(remains: Remains, *, with_topics: bool, now_ms: int) -> AppliedMetadata:
    """Let the broker go on with what remains; `with_topics` makes topics of the unknown partitions that have no
    problem. Where the metadata end then."""
    end = remains.end
    directory = remains.metadata_dir / PARTITION_DIRECTORY
    properties = dict(remains.log_dirs)[remains.metadata_dir].completed(remains.metadata_dir)
    if remains.replayed is None:
        begin_metadata_log(remains.metadata_dir, properties, CONTROLLER_LISTENER, now_ms)
    topics = [each for each in remains.unknown if each.problem is None] if with_topics else []
    if topics:
        image = _with_topics(remains, properties, topics, now_ms)
        snapshot.write_image(directory, image, now_ms)
        _put_log_aside(directory)
        end = AppliedMetadata(remains.cluster_id, image.provenance.end_offset, image.provenance.epoch)
    elif remains.replayed is not None and _ends_before_snapshot(directory):
        _put_log_aside(directory)
    for path, _ in remains.log_dirs:
        end.write(path)
    return end


def _ends_before_snapshot(directory: Path) -> bool:
    newest = max(list_snapshots(directory), default=SnapshotId(0, 0))
    segments = list_segments(directory)
    if not segments:
        return newest.end_offset > 0
    reader = SegmentReader(segments[-1].path, segments[-1].base_offset)
    for _ in reader:
        pass
    return reader.next_offset < newest.end_offset


def _put_log_aside(directory: Path) -> None:
    """The snapshot goes beyond the log, which is kept under names that nobody reads."""
    for path in [*(each.path for each in list_segments(directory)), directory / epoch_checkpoint.FILE_NAME]:
        if path.exists():
            path.rename(path.with_name(f"{path.name}.before-accept"))
    fsync_directory(directory)


def _with_topics(
    remains: Remains, properties: MetaProperties, partitions: Sequence[UnknownPartition], now_ms: int
) -> MetadataImage:
    """One offset and one epoch behind what remains, so that nobody goes on in the old log."""
    delta = MetadataDelta(remains.image)
    if features.METADATA_VERSION not in remains.image.feature_levels:
        for record, version in read_bootstrap_records(remains.metadata_dir):
            delta.replay(record, version)
    if not remains.image.quorum.voters:
        voter = Voter(
            remains.node_id, properties.directory_id, (CONTROLLER_LISTENER,), features.SUPPORTED[features.KRAFT_VERSION]
        )
        delta.replay_control(m.KRaftVersionRecord(kraft_version=1))
        delta.replay_control(snapshot.voters_record([voter]))
    level = delta.apply(Provenance(0, 0, now_ms)).metadata_version
    for record, version in _topic_records(remains, partitions, level):
        delta.replay(record, version)
    return delta.apply(Provenance(remains.end.end_offset + 1, remains.end.epoch + 1, now_ms))


def _topic_records(remains: Remains, partitions: Sequence[UnknownPartition], level: int) -> Iterator[VersionedRecord]:
    by_topic: dict[tuple[str, bytes], dict[int, UnknownPartition]] = {}
    for each in partitions:
        assert each.topic_id is not None
        by_topic.setdefault((each.topic, each.topic_id), {})[each.index] = each
    made: set[str] = set()
    for (name, topic_id), found in by_topic.items():
        known = remains.image.topics.by_name.get(name)
        if name in made:
            raise MetadataError(f"the log dirs hold partitions of two topics {name}: move those of one of them away")
        made.add(name)
        if known is None:
            yield VersionedRecord(m.TopicRecord(name=name, topic_id=topic_id), 0)
            settings = (("cleanup.policy", "compact"),) if name in _COMPACTED else _NOTHING_DELETED
            for key, value in settings:
                record = m.ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=name, name=key, value=value)
                yield VersionedRecord(record, 0)
        first = 0 if known is None else len(known.partitions)
        version = features.record_version("PartitionRecord", level)
        for index in range(first, max(found) + 1):
            yield VersionedRecord(_partition_record(remains, topic_id, index, found.get(index), version), version)


def _partition_record(
    remains: Remains, topic_id: bytes, index: int, found: UnknownPartition | None, version: int
) -> m.PartitionRecord:
    """The next leader goes one leader epoch beyond what the log has."""
    directory_id = remains.log_dirs[0][1].directory_id if found is None else found.directory_id
    return m.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[remains.node_id],
        isr=[remains.node_id],
        leader=NO_LEADER,
        leader_epoch=0 if found is None else _last_epoch(found.path),
        partition_epoch=0,
        directories=[directory_id] if version >= 1 else [],
    )


def _last_epoch(partition: Path) -> int:
    try:
        entries = epoch_checkpoint.read(partition / epoch_checkpoint.FILE_NAME)
    except StorageError as error:
        raise StorageError(f"{error}. Let `pybroker log repair` make it anew first") from error
    return max((epoch for epoch, _ in entries), default=0)
