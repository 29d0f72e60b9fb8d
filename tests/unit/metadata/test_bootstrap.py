"""New and known log dirs."""

import shutil
from pathlib import Path

import pytest

from pybroker.metadata import log_files, records
from pybroker.metadata.bootstrap import open_log_dirs, read_bootstrap_records
from pybroker.metadata.delta import empty_image
from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.metadata.file_log import FileMetadataLog
from pybroker.metadata.loader import load
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.errors import StorageError
from pybroker.storage.files.meta_properties import MetaProperties


def test_an_empty_dir_becomes_a_standalone_quorum(tmp_path: Path) -> None:
    path = tmp_path / "data"
    dirs = open_log_dirs([path], 7, 1000)
    directory_id = dirs.metadata.directory_id
    assert MetaProperties.read(path) == MetaProperties(7, dirs.cluster_id, directory_id)
    log = FileMetadataLog(dirs.metadata_log_directory)
    image = load(empty_image(dirs.cluster_id), log.replay()).finish(0, 0)
    assert image.quorum.kraft_version == 1
    (voter,) = image.quorum.voters
    assert (voter.id, voter.directory_id) == (7, directory_id)
    assert voter.endpoints == (("CONTROLLER", "127.0.0.1", 9093),)
    features = [record.record for record in read_bootstrap_records(path)]
    assert [(each.name, each.feature_level) for each in features] == [
        ("metadata.version", MAX_METADATA_VERSION),
        ("eligible.leader.replicas.version", 1),
    ]
    dirs.release()
    again = open_log_dirs([path], 7, 2000)
    assert (again.cluster_id, again.metadata.directory_id) == (dirs.cluster_id, directory_id)
    again.release()


def test_bootstrap_records_of_kafka(kafka_dir: Path) -> None:
    found = {each.record.name: each.record.feature_level for each in read_bootstrap_records(kafka_dir)}
    assert found["metadata.version"] == 30
    assert found["transaction.version"] == 2
    assert len(found) == 6


def test_a_second_dir_joins_the_cluster(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    open_log_dirs([first], 1, 1000).release()
    dirs = open_log_dirs([first, second], 1, 1000)
    assert [each.path for each in dirs.dirs] == [first, second]
    assert dirs.dirs[0].directory_id != dirs.dirs[1].directory_id
    assert not (second / log_files.PARTITION_DIRECTORY).exists()
    dirs.release()


def test_an_interrupted_set_up_is_done_again(tmp_path: Path) -> None:
    open_log_dirs([tmp_path], 1, 1000).release()
    (tmp_path / "meta.properties").unlink()
    open_log_dirs([tmp_path], 1, 1000).release()
    assert MetaProperties.read(tmp_path) is not None


def test_dirs_that_do_not_fit_are_refused_and_unlocked(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    open_log_dirs([first], 1, 1000).release()
    open_log_dirs([second], 1, 1000).release()
    with pytest.raises(StorageError, match="cannot be mixed"):
        open_log_dirs([first, second], 1, 1000)
    with pytest.raises(StorageError, match=r"setting node\.id is 2"):
        open_log_dirs([first], 2, 1000)
    with pytest.raises(StorageError, match=r"Set metadata\.log\.dir"):
        open_log_dirs([tmp_path / "new", first], 1, 1000)
    properties = MetaProperties.read(first)
    assert properties is not None
    copy = tmp_path / "copy"
    copy.mkdir()
    properties.write(copy)
    with pytest.raises(StorageError, match=r"same directory\.id"):
        open_log_dirs([first, copy], 1, 1000)
    other = MetaProperties(1, properties.cluster_id, random_uuid())
    other.write(copy)
    with pytest.raises(StorageError, match="has no __cluster_metadata-0"):
        open_log_dirs([copy, first], 1, 1000)
    open_log_dirs([first, copy], 1, 1000).release()


def test_partitions_without_meta_properties_are_refused(tmp_path: Path) -> None:
    (tmp_path / "alpha-0").mkdir()
    with pytest.raises(StorageError, match=r"alpha-0\) but no meta\.properties"):
        open_log_dirs([tmp_path], 1, 1000)


def test_control_records_are_written_in_version_0(tmp_path: Path) -> None:
    dirs = open_log_dirs([tmp_path], 1, 1000)
    path = dirs.metadata_log_directory / log_files.SnapshotId(0, 0).file_name
    kinds = [
        record.type
        for data in log_files.read_snapshot_batches(path)
        for record in records.decode_batch(data, "x").records
        if isinstance(record, records.ControlRecord)
    ]
    assert kinds == [records.SNAPSHOT_HEADER, records.KRAFT_VERSION, records.VOTERS, records.SNAPSHOT_FOOTER]
    dirs.release()


def test_an_interrupted_set_up_of_two_dirs_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    write, written = MetaProperties.write, []

    def crash_at_the_second(properties: MetaProperties, log_dir: Path) -> None:
        if written:
            raise KeyboardInterrupt
        write(properties, log_dir)
        written.append(log_dir)

    for metadata_dir in paths:
        monkeypatch.setattr(MetaProperties, "write", crash_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            open_log_dirs(paths, 1, 1000, metadata_dir)
        monkeypatch.undo()
        dirs = open_log_dirs(paths, 1, 1000, metadata_dir)
        assert [each.path for each in dirs.dirs] == paths
        dirs.release()
        for path in paths:
            shutil.rmtree(path)
        written.clear()
