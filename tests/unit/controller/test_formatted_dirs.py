"""Directories that `kafka-storage format` of Apache Kafka 4.3 and 4.4 made (../metadata/data/formatted/README.md)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.controller.start import start_controller
from pybroker.metadata.bootstrap import BOOTSTRAP_FILE, open_log_dirs, read_bootstrap_records
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.log_files import PARTITION_DIRECTORY
from pybroker.metadata.offline import replay
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.errors import StorageError
from pybroker.storage.meta_properties import MetaProperties
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


def _open(path: Path) -> MetadataImage:
    async def run() -> MetadataImage:
        dirs = open_log_dirs([path], 1, 1000)
        config = BrokerConfig.load(None, ["node.id=1", f"log.dirs={path}"])
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
