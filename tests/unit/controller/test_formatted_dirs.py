"""Directories that `kafka-storage format` of Apache Kafka 4.3 and 4.4 made (../metadata/data/formatted/README.md)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.controller.start import start_controller
from pybroker.metadata import snapshot
from pybroker.metadata.bootstrap import BOOTSTRAP_FILE, open_log_dirs, read_bootstrap_records
from pybroker.metadata.features import MAX_METADATA_VERSION, MIN_METADATA_VERSION
from pybroker.metadata.image import RESOURCE_BROKER, Endpoint, MetadataImage
from pybroker.metadata.log_files import PARTITION_DIRECTORY, SegmentReader, list_segments
from pybroker.metadata.offline import replay
from pybroker.metadata.records import VersionedRecord, decode_batch
from pybroker.metadata.registration import Registration
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.errors import StorageError
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import PartitionFiles

FORMATTED = Path(__file__).parents[1] / "metadata" / "data" / "formatted"
LEVELS = {"eligible.leader.replicas.version": 1, "group.version": 1, "streams.version": 1, "transaction.version": 2}
LEVELS_OF = {
    "4.3.0": {**LEVELS, "metadata.version": 30, "share.version": 1},
    "4.4.0": {**LEVELS, "metadata.version": 33, "share.version": 2},
}
#: kraft.version; a 4.3 without initial controllers leaves what one with static voters leaves.
KRAFT_VERSIONS = {
    "4.3.0-standalone": 1,
    "4.3.0-none": 0,
    "4.3.0-voters": 0,
    "4.4.0-standalone": 1,
    "4.4.0-none": 1,
    "4.4.0-voters": 0,
}
#: Marks of use beside which a missing metadata log is a loss.
MARKS = ["alpha-0/", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown", ".pybroker_applied_metadata"]


def _copy(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "data"
    shutil.copytree(FORMATTED / name, path)
    return path


def _open(path: Path, settings: Sequence[str] = ()) -> MetadataImage:
    async def run() -> MetadataImage:
        dirs = open_log_dirs([path], 1, 1000)
        config = BrokerConfig.load(None, ["node.id=1", f"log.dirs={path}", *settings])
        controller = await start_controller(config, dirs, lambda: 1000)
        image = controller.image
        await controller.close()
        dirs.release()
        return image

    return asyncio.run(run())


@pytest.mark.parametrize("name", KRAFT_VERSIONS)
def test_a_formatted_dir_opens_with_exactly_the_formatted_levels(tmp_path: Path, name: str) -> None:
    path = _copy(tmp_path, name)
    formatted = MetaProperties.read(path)
    expected = LEVELS_OF[name.partition("-")[0]]
    for _ in range(2):
        image = _open(path)
        assert dict(image.feature_levels) == expected
        assert image.quorum.kraft_version == KRAFT_VERSIONS[name]
        assert [voter.id for voter in image.quorum.voters] == [1] * image.quorum.kraft_version
    assert MetaProperties.read(path) == formatted
    # The log has them, too: whoever replays it without the first snapshot, as Apache Kafka does, finds them there.
    assert replay(PartitionFiles.of(path / PARTITION_DIRECTORY)).image.feature_levels == expected


@pytest.mark.parametrize("name", ["4.3.0-broker", "4.4.0-broker", *KRAFT_VERSIONS])
def test_a_formatted_dir_joins_its_cluster_as_an_observer(tmp_path: Path, name: str) -> None:
    path = _copy(tmp_path, name)
    formatted = MetaProperties.read(path)
    assert formatted is not None
    dirs = open_log_dirs([path], 1, 1000, joined_cluster_id=formatted.cluster_id)
    assert dirs.metadata.directory_id == formatted.directory_id
    dirs.release()


def test_the_first_snapshot_counts_before_bootstrap_checkpoint(tmp_path: Path) -> None:
    path = _copy(tmp_path, "4.4.0-standalone")
    shutil.copy(FORMATTED / "4.3.0-standalone" / BOOTSTRAP_FILE, path / BOOTSTRAP_FILE)
    assert {each.record.name: each.record.feature_level for each in read_bootstrap_records(path)} == LEVELS_OF["4.4.0"]


def test_a_dir_that_names_no_levels_says_with_which_it_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _copy(tmp_path, "4.3.0-standalone")
    (path / BOOTSTRAP_FILE).unlink()
    assert dict(_open(path).feature_levels) == {"metadata.version": 33}
    assert "says which feature levels to begin with: metadata.version=33" in caplog.text


def test_a_formatted_dir_beside_the_one_with_the_metadata_log_is_refused(tmp_path: Path) -> None:
    path = _copy(tmp_path, "4.3.0-voters")
    other = tmp_path / "other"
    shutil.copytree(FORMATTED / "4.3.0-voters", other)
    properties = MetaProperties.read(other)
    assert properties is not None
    properties.replace(directory_id=random_uuid()).write(other)
    _open(path)
    with pytest.raises(StorageError, match="has no __cluster_metadata-0"):
        open_log_dirs([other, path], 1, 1000)


@pytest.mark.parametrize("mark", MARKS)
def test_a_used_dir_without_its_metadata_log_is_not_taken_for_a_formatted_one(tmp_path: Path, mark: str) -> None:
    path = _copy(tmp_path, "4.3.0-voters")
    if mark == ".pybroker_applied_metadata":
        _open(path)
        shutil.rmtree(path / PARTITION_DIRECTORY)
        (path / mark).write_text('{"version": 1}')
    elif mark.endswith("/"):
        (path / mark).mkdir()
    else:
        (path / mark).write_text("0\n0\n")
    with pytest.raises(StorageError, match="has no __cluster_metadata-0"):
        open_log_dirs([path], 1, 1000)
    assert not (path / PARTITION_DIRECTORY).exists()


async def _use(path: Path) -> None:
    """Everything that this broker's controller writes in the course of its life."""
    dirs = open_log_dirs([path], 1, 1000)
    config = BrokerConfig.load(None, ["node.id=1", f"log.dirs={path}"])
    controller = await start_controller(config, dirs, lambda: 1000)
    here, other = dirs.metadata.directory_id, random_uuid()
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0)
    registration = Registration(random_uuid(), (endpoint,), None, (here,))
    await controller.register_broker(registration, {}, lambda: None)
    topic = m.CreateTopicsRequest.CreatableTopic(name="alpha", num_partitions=2, replication_factor=1)
    topic.configs = [m.CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="1000")]
    made = await controller.create_topics(m.CreateTopicsRequest(topics=[topic]), 7)
    assert made.topics[0].error_code == 0
    more = m.CreatePartitionsRequest.CreatePartitionsTopic(name="alpha", count=3, assignments=None)
    grown = await controller.create_partitions(m.CreatePartitionsRequest(topics=[more]), 3)
    assert grown.results[0].error_code == 0
    topic_id = controller.image.topics.by_name["alpha"].id
    await controller.change_directories([here, other], [other])
    await controller.assign_directories({(topic_id, 0): other})
    await controller.change_directories([here], [])
    await controller.allocate_producer_ids()
    await controller.register_broker(registration.replace(incarnation_id=random_uuid()), {}, lambda: None)
    await controller.fence_broker()
    await controller.close()
    dirs.release()


@pytest.mark.parametrize("level", range(MIN_METADATA_VERSION, MAX_METADATA_VERSION + 1))
def test_a_new_cluster_of_any_level_is_served(tmp_path: Path, level: int) -> None:
    """Records have no field, and the log no record, that the level does not know."""
    path = _copy(tmp_path, "4.3.0-voters")
    names = VersionedRecord(m.FeatureLevelRecord(name="metadata.version", feature_level=level), 0)
    (path / BOOTSTRAP_FILE).unlink()
    snapshot.write_snapshot(path / BOOTSTRAP_FILE, 0, 1000, 0, None, [names])
    asyncio.run(_use(path))
    image = replay(PartitionFiles.of(path / PARTITION_DIRECTORY)).image
    assert dict(image.feature_levels) == {"metadata.version": level}
    assert len(image.topics.by_name["alpha"].partitions) == 3
    kinds = {type(each.record).__name__ for each in _records(path)}
    assert ("BeginTransactionRecord" in kinds) == (level >= 13)
    assert "ConfigRecord" in kinds
    snapshot.write_image(path / PARTITION_DIRECTORY, image, 2000)
    assert len(_open(path).topics.by_name["alpha"].partitions) == 3


def _records(path: Path) -> Iterator[VersionedRecord]:
    for segment in list_segments(path / PARTITION_DIRECTORY):
        for data in SegmentReader(segment.path, segment.base_offset):
            for each in decode_batch(data, str(segment.path)).records:
                if isinstance(each, VersionedRecord):
                    yield each


@pytest.mark.parametrize("static", [None, "2"])
@pytest.mark.parametrize("name", [None, *KRAFT_VERSIONS])
def test_a_cluster_with_eligible_leaders_begins_with_one_min_insync_replicas(
    tmp_path: Path, name: str | None, static: str | None
) -> None:
    """As the controller of Kafka 4.4 does: the records of the levels, then the setting, in one transaction."""
    path = tmp_path / "data" if name is None else _copy(tmp_path, name)
    given = [] if static is None else [f"min.insync.replicas={static}"]
    image = _open(path, given)
    assert image.feature_levels["eligible.leader.replicas.version"] == 1
    assert dict(image.config(RESOURCE_BROKER, "")) == {"min.insync.replicas": static or "1"}
    kinds = [type(each.record).__name__ for each in _records(path)]
    begin, end = kinds.index("BeginTransactionRecord"), kinds.index("EndTransactionRecord")
    assert kinds[begin:end] == [
        "BeginTransactionRecord",
        *["FeatureLevelRecord"] * len(image.feature_levels),
        "ConfigRecord",
    ]
