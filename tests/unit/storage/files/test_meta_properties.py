"""meta.properties of every Kafka: what only newer versions write is not demanded of older directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.metadata.bootstrap import open_log_dirs
from pybroker.protocol.uuids import ZERO_UUID, random_uuid, uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.meta_properties import FILE_NAME, MetaProperties
from pybroker.storage.offline import text_files

CLUSTER = "zeeiqW7QSRKdASwp2IMT0g"
DIRECTORY = "NVqRSSwrrBWoSjNKuToAqw"
#: As Kafka leaves the file, by what wrote it: the text, and the version it says.
FILES = {
    "ZooKeeper": (f"#\n#Fri Nov 27 15:42:25 UTC 2026\nbroker.id=1\nversion=0\ncluster.id={CLUSTER}\n", 0),
    "came from ZooKeeper": (f"#\n#Fri\nbroker.id=1\ndirectory.id={DIRECTORY}\nversion=0\ncluster.id={CLUSTER}\n", 0),
    "no version": (f"broker.id=1\ncluster.id={CLUSTER}\n", 0),
    "3.3 to 3.6": (f"#\n#Fri Nov 27 15:50:42 UTC 2026\nnode.id=1\nversion=1\ncluster.id={CLUSTER}\n", 1),
    "3.7 and later": (f"#\n#Fri\nnode.id=1\ndirectory.id={DIRECTORY}\nversion=1\ncluster.id={CLUSTER}\n", 1),
}


def _write(path: Path, text: str) -> None:
    path.mkdir(exist_ok=True)
    (path / FILE_NAME).write_text(text)


@pytest.mark.parametrize("kind", FILES)
def test_a_dir_of_any_age_opens_and_keeps_its_version(tmp_path: Path, kind: str) -> None:
    text, version = FILES[kind]
    _write(tmp_path, text)
    dirs = open_log_dirs([tmp_path], 1, 1000, joined_cluster_id=CLUSTER)
    dirs.release()
    directory_id = dirs.metadata.directory_id
    assert directory_id != ZERO_UUID
    if DIRECTORY in text:
        assert uuid_to_text(directory_id) == DIRECTORY
        assert (tmp_path / FILE_NAME).read_text() == text, "a file that lacks nothing stays as it is"
    assert MetaProperties.read(tmp_path) == MetaProperties(1, CLUSTER, directory_id, version)
    again = open_log_dirs([tmp_path], 1, 2000, joined_cluster_id=CLUSTER)
    again.release()
    assert again.metadata.directory_id == directory_id


@pytest.mark.parametrize("kind", FILES)
def test_the_tools_take_it_for_whole(tmp_path: Path, kind: str) -> None:
    text, version = FILES[kind]
    _write(tmp_path, text)
    values = text_files.meta_properties(tmp_path / FILE_NAME)
    assert (values["version"], text_files.node_id_of(values)) == (str(version), 1)


_WHOLE = f"version=1\nnode.id=1\ncluster.id={CLUSTER}\ndirectory.id={DIRECTORY}\n"


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        (_WHOLE.replace("version=1\nnode", "broker"), True),
        (_WHOLE.replace("\n", "\r\n"), True),
        ("#\n" + _WHOLE.replace("\n", "\r\n"), False),
        (_WHOLE.rstrip("\n"), True),
        (_WHOLE.rstrip("w\n"), False),
        (_WHOLE.replace("node.id=1", "node.id=-1"), True),
        (_WHOLE.replace("node.id=1", "node.id=01"), True),
        (_WHOLE.replace("node.id=1", "node.id=1_0"), False),
        (_WHOLE.replace("node.id=1", "node.id=\u0661"), False),
        (FILES["ZooKeeper"][0].rstrip("\n"), False),
        (FILES["came from ZooKeeper"][0].rstrip("\n"), False),
        (FILES["came from ZooKeeper"][0].replace("version=0\n", ""), True),
    ],
)
def test_the_broker_and_the_tools_read_it_alike(tmp_path: Path, text: str, is_whole: bool) -> None:
    (tmp_path / FILE_NAME).write_bytes(text.encode("utf-8"))
    try:
        found = MetaProperties.read(tmp_path)
    except StorageError:
        found = None
    try:
        checked = text_files.meta_properties(tmp_path / FILE_NAME)
    except text_files.Damage:
        checked = None
    # Lines with different ends are read, and no broker has written them.
    assert (found is not None) is (is_whole or text.startswith("#\nv"))
    assert (checked is not None) is is_whole
    if found is not None and checked is not None:
        assert text_files.node_id_of(checked) == found.node_id
        assert (checked["version"], checked["cluster.id"]) == (str(found.version), CLUSTER)


def test_what_version_0_is_given_is_what_kafka_writes(tmp_path: Path) -> None:
    properties = MetaProperties(7, CLUSTER, random_uuid(), 0)
    properties.write(tmp_path)
    written = set((tmp_path / FILE_NAME).read_text().splitlines())
    directory = uuid_to_text(properties.directory_id)
    assert written == {"version=0", "broker.id=7", f"cluster.id={CLUSTER}", f"directory.id={directory}"}
    assert MetaProperties.read(tmp_path) == properties


def test_dirs_without_ids_are_no_copies_of_each_other(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        _write(path, FILES["3.3 to 3.6"][0])
    dirs = open_log_dirs(paths, 1, 1000, joined_cluster_id=CLUSTER)
    dirs.release()
    assert len({each.directory_id for each in dirs.dirs}) == 3


@pytest.mark.parametrize("kind", ["ZooKeeper", "3.3 to 3.6"])
def test_a_refused_dir_is_not_changed(tmp_path: Path, kind: str) -> None:
    text = FILES[kind][0]
    _write(tmp_path, text)
    with pytest.raises(StorageError, match=r"\.id=1, but the setting node\.id is 2"):
        open_log_dirs([tmp_path], 2, 1000, joined_cluster_id=CLUSTER)
    with pytest.raises(StorageError, match="belong to cluster"):
        open_log_dirs([tmp_path], 1, 1000, joined_cluster_id="another")
    assert (tmp_path / FILE_NAME).read_text() == text


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("lost", ["the line", "the file", "its end"])
def test_an_id_that_was_lost_comes_back_from_the_record(tmp_path: Path, version: int, lost: str) -> None:
    known = MetaProperties(1, CLUSTER, random_uuid(), version)
    known.write(tmp_path)
    (tmp_path / "alpha-0").mkdir()
    AppliedMetadata(CLUSTER, 10, 1).write(tmp_path)
    text = (tmp_path / FILE_NAME).read_text()
    left = {"the line": text[: text.index("directory.id")], "the file": "", "its end": text[: len(text) // 2]}[lost]
    (tmp_path / FILE_NAME).write_text(left)
    open_log_dirs([tmp_path], 1, 1000, joined_cluster_id=CLUSTER).release()
    assert MetaProperties.read(tmp_path) == known


@pytest.mark.parametrize(("kind", "names_zookeeper"), [("ZooKeeper", True), ("3.3 to 3.6", False)])
def test_a_dir_without_metadata_is_told_where_they_may_be(tmp_path: Path, kind: str, names_zookeeper: bool) -> None:
    _write(tmp_path, FILES[kind][0])
    with pytest.raises(StorageError, match="has no __cluster_metadata-0") as refused:
        open_log_dirs([tmp_path], 1, 1000)
    assert ("ZooKeeper" in str(refused.value)) is names_zookeeper
    assert (tmp_path / FILE_NAME).read_text() == FILES[kind][0]
