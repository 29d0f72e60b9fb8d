"""The small files of a log dir: what Kafka writes is read, what is written is Kafka's, nonsense is named."""

import os
from pathlib import Path

import pytest

from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files import atomic, clean_shutdown, epoch_checkpoint, offset_checkpoint, partition_metadata
from pybroker.storage.files.meta_properties import MetaProperties


def test_atomic_write_replaces_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic.write_durably(path, b"old")
    atomic.write_durably(path, b"new", mode=0o400)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o400
    assert os.listdir(tmp_path) == ["file"]


def test_failed_atomic_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    atomic.write_durably(path, b"old")

    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        atomic.write_durably(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_meta_properties_round_trip_and_kafkas_comments(tmp_path: Path) -> None:
    assert MetaProperties.read(tmp_path) is None
    properties = MetaProperties(3, "cluster", random_uuid())
    properties.write(tmp_path)
    assert MetaProperties.read(tmp_path) == properties
    text = (
        f"#Sat Nov 21\nnode.id=3\ndirectory.id={uuid_to_text(properties.directory_id)}\nversion=1\ncluster.id=cluster\n"
    )
    (tmp_path / "meta.properties").write_text(text)
    assert MetaProperties.read(tmp_path) == properties


@pytest.mark.parametrize("cluster_id", [" a = b ", "C:\\dir\\u0041", "#1!\t\r\n", "gr\u00fcn", "\U0001f600", "x" * 22])
def test_meta_properties_keep_any_cluster_id(tmp_path: Path, cluster_id: str) -> None:
    properties = MetaProperties(1, cluster_id, random_uuid())
    properties.write(tmp_path)
    assert MetaProperties.read(tmp_path) == properties


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=0\nbroker.id=1\n", r"cluster\.id is missing"),
        ("version=0\nnode.id=1\ncluster.id=c\n", r"broker\.id is missing"),
        ("version=1\nbroker.id=1\ncluster.id=c\n", r"node\.id is missing"),
        ("version=2\nnode.id=1\ncluster.id=c\n", "version='2'"),
        ("node.id=1\ncluster.id=c\n", r"broker\.id is missing"),
        ("version=1\nnode.id=1\n", r"cluster\.id is missing"),
        ("", r"broker\.id, cluster\.id, directory\.id is missing"),
        # Lost parts of a file that had an id.
        ("version=1\nnode.id=1\ncluster.id=c", r"directory\.id is missing"),
        ("version=1\nnode.id=1\ncluster.id=cdirectory.id=AAECAwQFBgcICQoLDA0ODw\n", r"directory\.id is missing"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=\n", r"directory\.id is missing"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n", "reserved"),
        ("version=0\nbroker.id=1\ncluster.id=c\ndirectory.id=short\n", "malformed"),
        ("version=1\nnode.id=x\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n", "malformed"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=short\n", "malformed"),
        ("version=1\nnode.id=1\ncluster.id=\\u12\n", r"meta\.properties:3.*\\u12"),
    ],
)
def test_meta_properties_that_make_no_sense(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(StorageError, match=message):
        MetaProperties.read(tmp_path)


def test_meta_properties_of_another_node_or_cluster(tmp_path: Path) -> None:
    properties = MetaProperties(3, "cluster", random_uuid())
    properties.check(tmp_path, 3, "cluster")
    with pytest.raises(StorageError, match=r"node\.id=3, but the setting node\.id is 4"):
        properties.check(tmp_path, 4)
    with pytest.raises(StorageError, match="cannot be mixed"):
        properties.check(tmp_path, 3, "other")


def test_offset_checkpoint_round_trip_in_kafkas_text(tmp_path: Path) -> None:
    path = tmp_path / offset_checkpoint.RECOVERY_POINT
    assert offset_checkpoint.read(path) == {}
    path.touch()
    assert offset_checkpoint.read(path) == {}
    offsets = {("alpha", 4): 0, ("beta.x", 0): 12}
    offset_checkpoint.write(path, offsets)
    assert path.read_text() == "0\n2\nalpha 4 0\nbeta.x 0 12\n"
    assert offset_checkpoint.read(path) == offsets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n0\n", "line 1"),
        ("0\n", "line 2"),
        ("0\n1\nalpha 0\n", "line 3"),
        ("0\n1\nalpha 0 -1\n", "line 3"),
        ("0\n1\nalpha 0 1 2\n", "line 3"),
        ("0\n2\nalpha 0 1\n", "2 entries announced in line 2, 1 found"),
    ],
)
def test_offset_checkpoint_that_makes_no_sense(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(StorageError, match=message):
        offset_checkpoint.read(path)


def test_epoch_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / epoch_checkpoint.FILE_NAME
    assert epoch_checkpoint.read(path) == []
    epoch_checkpoint.write(path, [(1, 0), (3, 200)])
    assert path.read_text() == "0\n2\n1 0\n3 200\n"
    assert epoch_checkpoint.read(path) == [(1, 0), (3, 200)]
    path.write_text("0\n2\n1 0\n")
    with pytest.raises(StorageError, match="2 entries announced, 1 found"):
        epoch_checkpoint.read(path)


def test_clean_shutdown_file(tmp_path: Path) -> None:
    assert clean_shutdown.read(tmp_path) is None
    clean_shutdown.write(tmp_path, 287)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":287}'
    assert clean_shutdown.read(tmp_path) == 287
    (tmp_path / ".kafka_cleanshutdown").write_text("")
    assert clean_shutdown.read(tmp_path) == clean_shutdown.UNKNOWN_BROKER_EPOCH
    clean_shutdown.remove(tmp_path)
    clean_shutdown.remove(tmp_path)
    assert clean_shutdown.read(tmp_path) is None


def test_partition_metadata(tmp_path: Path) -> None:
    assert partition_metadata.read(tmp_path) is None
    topic_id = random_uuid()
    partition_metadata.write(tmp_path, topic_id)
    assert (tmp_path / "partition.metadata").read_text() == f"version: 0\ntopic_id: {uuid_to_text(topic_id)}"
    assert partition_metadata.read(tmp_path) == topic_id
    for text in ("version: 0", "version: 1\ntopic_id: y5MaaPChQMejgB96BU_xKA", "version: 0\ntopic_id: " + "A" * 22):
        (tmp_path / "partition.metadata").write_text(text)
        with pytest.raises(StorageError, match=r"partition\.metadata"):
            partition_metadata.read(tmp_path)


def test_a_cluster_id_may_have_bytes_that_end_lines_for_python_alone(tmp_path: Path) -> None:
    properties = MetaProperties(3, "\x1cone\x85two\x1d", random_uuid())
    properties.write(tmp_path)
    assert MetaProperties.read(tmp_path) == properties
